package kafkatest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// TestPartitionFor_ReckonsAsJavaDoes: the hashes are those of Java's String.hashCode.
func TestPartitionFor_ReckonsAsJavaDoes(t *testing.T) {
	t.Parallel()
	for key, hash := range map[string]int32{
		"": 0, "a": 97, "hello": 99162322, "polygenelubricants": 0, // whose hash is the smallest integer, taken as 0
		"lathe": 102744796,
	} {
		if got, want := partitionFor(key, 50), hash%50; got != want {
			t.Errorf("%q is in partition %d, want %d", key, got, want)
		}
	}
}

func TestLeadNext_TakesTheNextReplicaInSync(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		replicas, inSync []int32
		leader           int32
		want             []int32
	}{
		{"the second", []int32{1, 2, 3}, []int32{1, 2, 3}, 1, []int32{2, 3, 1}},
		{"round", []int32{1, 2, 3}, []int32{3, 1, 2}, 3, []int32{1, 2, 3}},
		{"not one out of sync", []int32{1, 2, 3}, []int32{1, 3}, 1, []int32{3, 1, 2}},
		{"none other", []int32{1, 2, 3}, []int32{2}, 2, []int32{2, 3, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := leadNext(tc.replicas, tc.inSync, tc.leader); !slices.Equal(got, tc.want) {
				t.Errorf("the replicas are %v, want %v", got, tc.want)
			}
		})
	}
}

func TestConfig_RefusesANetThatDoesNotFit(t *testing.T) {
	t.Parallel()
	if err := (Config{Brokers: 3, Nets: [][]string{{"127.0.0.1:1"}}}).validate(); err == nil {
		t.Error("a net of one address was taken for three brokers")
	}
}
