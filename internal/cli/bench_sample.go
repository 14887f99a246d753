package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lathe-run/lathe/internal/app"
)

// sample is what the processes have used so far.
type sample struct {
	worker, broker, driver time.Duration
	peakMB                 float64
	cycles                 float64
	cycleP50MS             float64
}

func (b *bench) sample(spec runSpec, c *child) (sample, error) {
	var s sample
	var errs [5]error
	s.worker, errs[0] = cpuOf(c.pid())
	s.broker, errs[1] = cpuOf(b.pids...)
	s.driver, errs[2] = cpuOf(os.Getpid())
	s.peakMB, errs[3] = peakOf(c.pid())
	s.cycles, s.cycleP50MS, errs[4] = scrapeCycles(spec.admin)
	return s, errors.Join(errs[:]...)
}

// scrapeCycles reads how many cycles were committed, and their median duration, from the metrics of a worker or the floor.
func scrapeCycles(addr string) (count, p50MS float64, err error) {
	resp, err := http.Get("http://" + addr + "/metrics") //nolint:noctx // The address is the benchmark's own child.
	if err != nil {
		return 0, 0, fmt.Errorf("read the worker's metrics: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // It was read.
	var h histogram
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		h.add(s.Text())
	}
	return h.count, h.median() * 1000, nil
}

// histogram is the one metric that is read: the duration of committed cycles.
type histogram struct {
	count  float64
	bounds []float64
	counts []float64
}

func (h *histogram) add(line string) {
	const name = "lathe_commit_duration_seconds_"
	rest, ok := strings.CutPrefix(line, name)
	if !ok || !strings.Contains(rest, "committed") {
		return
	}
	value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
	if err != nil {
		return
	}
	switch {
	case strings.HasPrefix(rest, "count"):
		h.count = value
	case strings.HasPrefix(rest, "bucket"):
		_, le, _ := strings.Cut(rest, `le="`)
		le, _, _ = strings.Cut(le, `"`)
		if bound, err := strconv.ParseFloat(le, 64); err == nil {
			h.bounds, h.counts = append(h.bounds, bound), append(h.counts, value)
		}
	}
}

// median is the median by linear interpolation within its bucket, in seconds.
func (h *histogram) median() float64 {
	low, below := 0.0, 0.0
	for i, bound := range h.bounds {
		if half := h.count / 2; h.counts[i] >= half && h.counts[i] > below {
			return low + (bound-low)*(half-below)/(h.counts[i]-below)
		}
		low, below = bound, h.counts[i]
	}
	return low
}

// shape is what the turns of a run wrote: how much per turn on each topic, and samples of it.
type shape struct {
	Turns float64 `json:"turns"`
	// Tool, Turn and Changelog are the topics; End are the turn:end records, which are also counted in Turn.
	Tool      topicShape `json:"tool"`
	Turn      topicShape `json:"turn"`
	Changelog topicShape `json:"changelog"`
	End       topicShape `json:"end"`
}

// topicShape is what was written to one topic.
type topicShape struct {
	Records float64 `json:"records"`
	Bytes   float64 `json:"bytes"`
	// Samples are the first records, for the floor to write again.
	Samples []sampleRecord `json:"samples"`
}

type sampleRecord struct {
	Value   []byte             `json:"value"`
	Headers []kgo.RecordHeader `json:"headers"`
}

// maxSamples is so many that one comes again on its partition only outside the window of LZ4: the floor's records compress like the
// worker's.
const maxSamples = 6000

func (t *topicShape) add(rec *kgo.Record) {
	t.Records++
	t.Bytes += float64(recordBytes(rec))
	if len(t.Samples) < maxSamples {
		t.Samples = append(t.Samples, sampleRecord{rec.Value, rec.Headers})
	}
}

func (s *shape) counts() benchCounts {
	return benchCounts{Events: (s.Tool.Records + s.Turn.Records) / s.Turns, Changelog: s.Changelog.Records / s.Turns}
}

func (s *shape) bytes() float64 { return (s.Tool.Bytes + s.Turn.Bytes + s.Changelog.Bytes) / s.Turns }

// readShape reads all that the run wrote and counts it.
func readShape(ctx context.Context, s *app.Settings, turns int64) (shape, error) {
	n := s.Topics()
	out := shape{Turns: float64(turns)}
	err := errors.Join(
		readTopic(ctx, s, n.ToolEvents, out.Tool.add),
		readTopic(ctx, s, n.Changelog, out.Changelog.add),
		readTopic(ctx, s, n.TurnEvents, func(rec *kgo.Record) {
			if _, end := endedTurn(rec); end {
				out.Turn.Records, out.Turn.Bytes = out.Turn.Records+1, out.Turn.Bytes+float64(recordBytes(rec))
				out.End.add(rec)
			} else {
				out.Turn.add(rec)
			}
		}),
	)
	out.alignEnds()
	return out, err
}

// alignEnds keeps the ends of those turns whose other events are kept: in the floor, too, a batch holds what one turn says twice.
func (s *shape) alignEnds() {
	others := s.Turn.Records - s.End.Records
	if others <= 0 {
		return
	}
	turns := int(float64(len(s.Turn.Samples)) * s.End.Records / others)
	s.End.Samples = s.End.Samples[:min(max(turns, 1), len(s.End.Samples))]
}

// readTopic reads the committed records of a topic, up to its present end.
func readTopic(ctx context.Context, s *app.Settings, topic string, each func(*kgo.Record)) error {
	from, err := offsets(ctx, s, false, []string{topic})
	if err != nil {
		return err
	}
	ends, err := endOffsets(ctx, s, topic)
	if err != nil {
		return err
	}
	cl, err := clientConfig(s).NewClient(kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	for len(ends) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := errors.Join(context.Cause(ctx), firstError(fetches)); err != nil {
			return err
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if rec.Offset+1 >= ends[rec.Partition] {
				delete(ends, rec.Partition)
			}
			if !rec.Attrs.IsControl() {
				each(rec)
			}
		})
	}
	return nil
}

func recordBytes(rec *kgo.Record) int {
	n := len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// endOffsets are the ends of the partitions that hold anything.
func endOffsets(ctx context.Context, s *app.Settings, topic string) (map[int32]int64, error) {
	cl, err := clientConfig(s).NewClient()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	listed, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("look up the end of %s: %w", topic, err)
	}
	ends := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			ends[o.Partition] = o.Offset
		}
	})
	return ends, nil
}
