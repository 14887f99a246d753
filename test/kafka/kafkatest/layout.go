package kafkatest

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// clusterID is the id that every cluster is formatted with; clusters never meet, so one is enough.
const clusterID = "bGF0aGUtdGVzdC1rYWZrYQ"

// logConfig sends what is worth reading to broker.log.
const logConfig = `<Configuration status="ERROR">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
`

// layOut makes the directories and settings of all brokers of a cluster.
func layOut(inst installation, dir string, cfg Config) ([]*broker, error) {
	ports, err := freePorts(2 * cfg.Brokers)
	if err != nil {
		return nil, err
	}
	clients, controllers := ports[:cfg.Brokers], ports[cfg.Brokers:]
	var voters []string
	for i, port := range controllers {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, port))
	}
	var brokers []*broker
	for i := range cfg.Brokers {
		b := &broker{
			inst: inst, id: i + 1, heap: cfg.Heap,
			addr: "127.0.0.1:" + strconv.Itoa(clients[i]),
			dir:  filepath.Join(dir, "broker-"+strconv.Itoa(i+1)),
		}
		props := quickProperties(cfg.Brokers)
		maps.Copy(props, map[string]string{
			"process.roles":                  "broker,controller",
			"node.id":                        strconv.Itoa(b.id),
			"controller.quorum.voters":       strings.Join(voters, ","),
			"listeners":                      fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", b.addr, controllers[i]),
			"advertised.listeners":           "PLAINTEXT://" + b.addr,
			"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
			"controller.listener.names":      "CONTROLLER",
			"inter.broker.listener.name":     "PLAINTEXT",
			"log.dirs":                       filepath.Join(b.dir, "data"),
		})
		maps.Copy(props, cfg.Properties)
		if err := b.writeFiles(props); err != nil {
			return nil, err
		}
		brokers = append(brokers, b)
	}
	return brokers, nil
}

// quickProperties are the settings that make tests quick and leave the protocol as it is.
func quickProperties(brokers int) map[string]string {
	replicas := strconv.Itoa(min(brokers, 3))
	inSync := "1"
	if brokers > 1 {
		inSync = "2"
	}
	return map[string]string{
		"auto.create.topics.enable":                                   "false",
		"default.replication.factor":                                  replicas,
		"min.insync.replicas":                                         inSync,
		"offsets.topic.replication.factor":                            replicas,
		"offsets.topic.num.partitions":                                "5",
		"transaction.state.log.replication.factor":                    replicas,
		"transaction.state.log.min.isr":                               inSync,
		"transaction.state.log.num.partitions":                        "5",
		"share.coordinator.state.topic.replication.factor":            replicas,
		"share.coordinator.state.topic.min.isr":                       inSync,
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
		"group.initial.rebalance.delay.ms":                            "0",
		"group.min.session.timeout.ms":                                "1000",
		"group.consumer.min.session.timeout.ms":                       "1000",
		"group.consumer.min.heartbeat.interval.ms":                    "100",
		"group.consumer.heartbeat.interval.ms":                        "500",
		"log.cleaner.dedupe.buffer.size":                              "8388608",
	}
}

func (b *broker) writeFiles(props map[string]string) error {
	if err := os.MkdirAll(b.dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of broker %d: %w", b.id, err)
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&text, "%s=%s\n", key, props[key])
	}
	for name, content := range map[string]string{"server.properties": text.String(), "log4j2.xml": logConfig} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("write %s of broker %d: %w", name, b.id, err)
		}
	}
	return nil
}

// freePorts returns ports of the loopback that were free at the same moment.
func freePorts(n int) ([]int, error) {
	var ports []int
	var listeners []net.Listener
	defer func() { // only when all are found, so that no port comes twice
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	for range n {
		//nolint:noctx // listening on the loopback does not wait
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		listeners = append(listeners, l)
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("find a free port: %v is no TCP address", l.Addr())
		}
		ports = append(ports, addr.Port)
	}
	return ports, nil
}
