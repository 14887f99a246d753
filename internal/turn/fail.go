package turn

import "github.com/lathe-run/lathe/schemas"

// Fail ends a turn that cannot go on as failed, and closes its calls. What is durable of the turn is in t; before is what this
// process knew of it when it stopped, which says of a started call whether it began, or nil if it did not run here. It returns what
// Run does.
func (l *Loop) Fail(t *Turn, before *Known, code schemas.Code, message string) error {
	if before != nil {
		t.Known.inherit(before)
	}
	r := &run{loop: l, turn: t, known: t.Known}
	return r.end(failed(code, "%s", message))
}

// inherit takes over how far started calls have come. What another process may have begun stays in doubt.
func (k *Known) inherit(before *Known) {
	for ref, c := range k.calls {
		if was := before.calls[ref]; was != nil {
			c.begun, c.inDoubt = was.begun, was.inDoubt
		}
	}
}
