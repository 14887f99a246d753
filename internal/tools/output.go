package tools

import (
	"errors"

	"github.com/lathe-run/lathe/schemas"
)

// result checks what a tool answered and returns its canonical form.
func (t *boundTool) result(r reply) ([]byte, *failure) {
	output, v, fits := r.raw, r.text, r.fits
	if v == nil && !fits {
		output, fits = t.flatResult(r.raw)
	}
	if v == nil && !fits {
		parsed, err := parseWithin(r.raw, t.maxDepth)
		if err != nil {
			return nil, t.invalid(err.Error(), err)
		}
		v, output = parsed, appendValue(make([]byte, 0, len(r.raw)), parsed)
	}
	if len(output) > t.maxResult {
		text := tooLarge("the result of "+t.id.Name+" has", len(output), t.maxResult)
		return nil, &failure{code: schemas.CodeResultTooLarge, message: text, err: errors.New(text)}
	}
	if t.output != nil && !fits {
		if err := t.output.validate(v); err != nil {
			return nil, t.invalid(explain(err), err)
		}
	}
	return output, nil
}

// flatResult returns the canonical form of a result that fits at a glance.
func (t *boundTool) flatResult(raw []byte) (output []byte, fits bool) {
	var f flat
	f.read(raw, t.maxDepth)
	if !t.output.fits(&f) {
		return nil, false
	}
	return f.append(make([]byte, 0, len(raw)), 0), true
}

func (t *boundTool) invalid(text string, err error) *failure {
	return &failure{code: schemas.CodeInvalidOutput, message: "tool " + t.id.Name + " gave an invalid result: " + text, err: err}
}
