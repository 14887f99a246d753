package torture

import (
	"reflect"
	"slices"
	"testing"
)

func TestSequence_FollowsFromItsSeedAlone(t *testing.T) {
	t.Parallel()
	a, b, other := newSequence(7, nil), newSequence(7, nil), newSequence(8, nil)
	same := true
	for n := range 2000 {
		one, two := a.take(), b.take()
		if !reflect.DeepEqual(one, two) {
			t.Fatalf("record %d of one seed is %+v and %+v", n, one, two)
		}
		same = same && reflect.DeepEqual(one, other.take())
	}
	if same {
		t.Error("two seeds gave the same records")
	}
}

// TestSequence_HasEverythingThatWorkersMeet also checks what the oracle relies on: a turn comes before its repeats and conflicts.
func TestSequence_HasEverythingThatWorkersMeet(t *testing.T) {
	t.Parallel()
	s := newSequence(1, nil)
	begun, kinds, reasons, again := make(map[string]bool), make(map[string]int), make(map[string]int), 0
	for range 5000 {
		it := s.take()
		switch {
		case it.first != nil:
			begun[it.first.ID] = true
			kinds[kindOf(it.first.ID)]++
		case it.bad != nil:
			reasons[it.bad.May[0]]++
		case it.turn != "":
			if again++; !begun[it.turn] {
				t.Fatalf("turn %s is repeated before it begins", it.turn)
			}
		}
	}
	if len(kinds) != 10 || len(reasons) != 6 || again < 100 {
		t.Errorf("the sequence has the turns %v, the bad records %v and %d repeats", kinds, reasons, again)
	}
}

func kindOf(id string) string {
	for i := range id {
		if id[i] == '-' {
			return id[:i]
		}
	}
	return id
}

func TestReadPlan_SharesTheAttacksAmongTheSeeds(t *testing.T) {
	t.Parallel()
	set := map[string]string{"TORTURE_SEEDS": "1,2,3", "TORTURE_SHARE": "1", "TORTURE_PROTOCOL": "both"}
	p, err := readPlan(func(name string) string { return set[name] })
	if err != nil {
		t.Fatal(err)
	}
	var all, protocols []string
	for i := range p.seeds {
		cfg := p.run(i)
		all, protocols = append(all, cfg.Attacks...), append(protocols, cfg.Protocol)
	}
	slices.Sort(all)
	if want := slices.Sorted(slices.Values(Names())); !slices.Equal(all, want) {
		t.Errorf("the seeds have the attacks %v, want each once: %v", all, want)
	}
	if !slices.Equal(protocols, []string{"classic", "consumer", "classic"}) {
		t.Errorf("the seeds have the protocols %v", protocols)
	}
}

func TestReadPlan_TakesSeedsTimeAndAttacks(t *testing.T) {
	t.Parallel()
	set := map[string]string{"TORTURE_SEEDS": "3, 4", "TORTURE_SECONDS": "30", "TORTURE_ATTACKS": "kill,term"}
	p, err := readPlan(func(name string) string { return set[name] })
	if err != nil || !reflect.DeepEqual(p.seeds, []uint64{3, 4}) || p.config.Attack.Seconds() != 30 || !reflect.DeepEqual(p.config.Attacks, []string{"kill", "term"}) {
		t.Errorf("read %+v, %v", p, err)
	}
	for name, value := range map[string]string{"TORTURE_PROTOCOL": "eager", "TORTURE_ATTACKS": "tickle", "TORTURE_SEED": "x", "TORTURE_MINUTES": "-1"} {
		if _, err := readPlan(func(n string) string { return map[string]string{name: value}[n] }); err == nil {
			t.Errorf("%s=%s was taken", name, value)
		}
	}
}
