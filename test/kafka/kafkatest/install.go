package kafkatest

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// installation is where Java and the jars of Kafka are.
type installation struct {
	java string
	libs string
}

// install returns the Kafka of test/kafka/pom.xml, brought by Maven into .kafka/ if it is not there yet.
func install(ctx context.Context) (installation, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return installation{}, errors.New(
			"no java on the PATH: Apache Kafka needs it; install a JRE of version 17 or later")
	}
	root, err := repositoryRoot()
	if err != nil {
		return installation{}, err
	}
	pom := filepath.Join(root, "test", "kafka", "pom.xml")
	version, err := kafkaVersion(pom)
	if err != nil {
		return installation{}, err
	}
	home := filepath.Join(root, ".kafka")
	inst := installation{java: java, libs: filepath.Join(home, "kafka-"+version)}
	if isDir(inst.libs) {
		return inst, nil
	}
	unlock, err := lockHome(home)
	if err != nil {
		return installation{}, err
	}
	defer unlock()
	if isDir(inst.libs) { // another process was quicker
		return inst, nil
	}
	return inst, download(ctx, pom, version, inst.libs)
}

// download copies the jars beside their place and moves them there when all are complete.
func download(ctx context.Context, pom, version, libs string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return errors.New("no mvn on the PATH: bringing Apache Kafka needs Maven; install Maven 3.8 or later")
	}
	begun := time.Now()
	fmt.Fprintf(os.Stderr, "kafkatest: bringing Apache Kafka %s (54 MB, once) ...\n", version)
	part := libs + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("clear %s: %w", part, err)
	}
	//nolint:gosec // the program and its arguments come from the repository, not from input
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+part)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("bring kafka with maven: %w\n%s", err, bytes.TrimSpace(out))
	}
	if err := os.Rename(part, libs); err != nil {
		return fmt.Errorf("put the jars of kafka in place: %w", err)
	}
	fmt.Fprintf(os.Stderr, "kafkatest: Apache Kafka %s is there after %s\n", version,
		time.Since(begun).Round(100*time.Millisecond))
	return nil
}

// lockHome keeps test processes that run side by side from downloading at the same time.
func lockHome(home string) (unlock func(), err error) {
	if err := os.MkdirAll(home, 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of kafka: %w", err)
	}
	//nolint:gosec // the path is made here, not from input
	lock, err := os.OpenFile(filepath.Join(home, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the folder of kafka: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the folder of kafka: %w", err), lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}

// kafkaVersion reads the version from the pom, the one place that has it.
func kafkaVersion(pom string) (string, error) {
	raw, err := os.ReadFile(pom) //nolint:gosec // the path is made here, not from input
	if err != nil {
		return "", fmt.Errorf("read the pom of kafka: %w", err)
	}
	var project struct {
		Properties struct {
			Version string `xml:"kafka.version"`
		} `xml:"properties"`
	}
	if err := xml.Unmarshal(raw, &project); err != nil {
		return "", fmt.Errorf("read the pom of kafka: %w", err)
	}
	if project.Properties.Version == "" {
		return "", fmt.Errorf("%s has no property kafka.version", pom)
	}
	return project.Properties.Version, nil
}

// repositoryRoot is the nearest folder at or above the working directory that holds this package.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test", "kafka", "pom.xml")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the repository: no test/kafka/pom.xml at or above the working directory")
		}
		dir = parent
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
