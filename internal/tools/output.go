package tools

import (
	"errors"

	"github.com/lathe-run/lathe/schemas"
)

// result checks what a tool answered and returns its canonical form.
func (t *boundTool) result(r reply) ([]byte, *failure) {
	output, v := r.raw, r.text
	if v == nil {
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
	if t.output != nil {
		if err := t.output.validate(v); err != nil {
			return nil, t.invalid(explain(err), err)
		}
	}
	return output, nil
}

func (t *boundTool) invalid(text string, err error) *failure {
	return &failure{code: schemas.CodeInvalidOutput, message: "tool " + t.id.Name + " gave an invalid result: " + text, err: err}
}
