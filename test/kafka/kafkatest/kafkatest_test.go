package kafkatest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestName_IsLegalAndUnique(t *testing.T) {
	t.Parallel()
	legal := regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	t.Run("ümlaut/slash and "+strings.Repeat("long", 100), func(t *testing.T) {
		t.Parallel()
		a, b := Name(t), Name(t)
		if !legal.MatchString(a) || !legal.MatchString(b) {
			t.Errorf("illegal names %q, %q", a, b)
		}
		if a == b {
			t.Errorf("two names are both %q", a)
		}
	})
}

func TestKafkaVersion_ComesFromThePom(t *testing.T) {
	t.Parallel()
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	version, err := kafkaVersion(filepath.Join(root, "test", "kafka", "pom.xml"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(version) {
		t.Errorf("version = %q", version)
	}
}

func TestRemoveStale_TakesOnlyWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	held, lock, err := lockedDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	left, leftLock, err := lockedDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	leftLock.Close() // as the end of its process does

	removeStale(parent)

	if _, err := os.Stat(held); err != nil {
		t.Errorf("the held directory is gone: %v", err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the directory left behind is still there: %v", err)
	}
}

func TestLayOut_PropertiesOverrideAndPortsDiffer(t *testing.T) {
	t.Parallel()
	cfg := Config{Brokers: 3, Properties: map[string]string{"min.insync.replicas": "3"}}.withDefaults()
	brokers, err := layOut(installation{}, t.TempDir(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, b := range brokers {
		if seen[b.addr] {
			t.Errorf("two brokers have the address %s", b.addr)
		}
		seen[b.addr] = true
		raw, err := os.ReadFile(filepath.Join(b.dir, "server.properties"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"min.insync.replicas=3\n", "default.replication.factor=3\n", b.addr} {
			if !strings.Contains(string(raw), line) {
				t.Errorf("server.properties of broker %d lacks %q:\n%s", b.id, line, raw)
			}
		}
	}
}
