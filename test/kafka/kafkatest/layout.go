package kafkatest

import (
	"fmt"
	"maps"
	"math/rand/v2"
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
	ports, err := freePorts((2 + len(cfg.Nets)) * cfg.Brokers)
	if err != nil {
		return nil, err
	}
	take := func() (addrs []string) {
		for _, port := range ports[:cfg.Brokers] {
			addrs = append(addrs, "127.0.0.1:"+strconv.Itoa(port))
		}
		ports = ports[cfg.Brokers:]
		return addrs
	}
	clients, controllers := take(), take()
	nets := make([][]string, len(cfg.Nets))
	for k := range nets {
		nets[k] = take()
	}
	var voters []string
	for i, addr := range controllers {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, addr))
	}
	var brokers []*broker
	for i := range cfg.Brokers {
		b := &broker{inst: inst, id: i + 1, heap: cfg.Heap, addr: clients[i], dir: filepath.Join(dir, "broker-"+strconv.Itoa(i+1))}
		ways := []listener{{"PLAINTEXT", b.addr, b.addr}}
		for k, addrs := range nets {
			b.nets = append(b.nets, addrs[i])
			ways = append(ways, listener{"NET" + strconv.Itoa(k), addrs[i], cfg.Nets[k][i]})
		}
		props := quickProperties(cfg.Brokers)
		maps.Copy(props, listenerProperties(ways, controllers[i]))
		maps.Copy(props, map[string]string{
			"process.roles":            "broker,controller",
			"node.id":                  strconv.Itoa(b.id),
			"controller.quorum.voters": strings.Join(voters, ","),
			"log.dirs":                 filepath.Join(b.dir, "data"),
		})
		maps.Copy(props, cfg.Properties)
		if err := b.writeFiles(props); err != nil {
			return nil, err
		}
		brokers = append(brokers, b)
	}
	return brokers, nil
}

// listener is one way to a broker: where it listens, and what it says where that is.
type listener struct{ name, addr, advertised string }

func listenerProperties(ways []listener, controller string) map[string]string {
	at, advertised, protocols := []string{"CONTROLLER://" + controller}, []string{}, []string{"CONTROLLER:PLAINTEXT"}
	for _, w := range ways {
		at = append(at, w.name+"://"+w.addr)
		advertised = append(advertised, w.name+"://"+w.advertised)
		protocols = append(protocols, w.name+":PLAINTEXT")
	}
	return map[string]string{
		"listeners":                      strings.Join(at, ","),
		"advertised.listeners":           strings.Join(advertised, ","),
		"listener.security.protocol.map": strings.Join(protocols, ","),
		"controller.listener.names":      "CONTROLLER",
		"inter.broker.listener.name":     "PLAINTEXT",
	}
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

// Ports of brokers lie below those that the kernel gives to outgoing connections (from 32768 on Linux unless it was told
// otherwise), and above those of services: a broker that is down for a while finds its ports free again.
const (
	lowestPort  = 15000
	highestPort = 32000
)

// freePorts returns ports of the loopback that were free at the same moment.
func freePorts(n int) ([]int, error) {
	var ports []int
	var listeners []net.Listener
	defer func() { // only when all are found, so that no port comes twice
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	var last error
	for tries := 0; len(ports) < n; tries++ {
		if tries > 100*n {
			return nil, fmt.Errorf("find a free port: %w", last)
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort) //nolint:gosec // any port will do
		//nolint:noctx // listening on the loopback does not wait
		l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			last = err
			continue
		}
		listeners, ports = append(listeners, l), append(ports, port)
	}
	return ports, nil
}
