package tools

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/schemas"
)

// Prepare checks a call that a model asked for: its tool is one of those offered and its arguments fit. It returns the call that
// can be started, or the result that says why nothing runs.
func (b *Bound) Prepare(asked fact.Asked, ref fact.Ref, offered []fact.Tool) (fact.Call, *fact.Result) {
	t := b.byModel[asked.Name]
	if t == nil || !b.offers(offered, t.id.Name) {
		return fact.Call{}, b.unknown(asked, ref, offered)
	}
	input, decoded, fit := t.arguments(asked.Arguments, b.runtime.cfg.MaxInputBytes)
	if fit != nil {
		return fact.Call{}, &fact.Result{
			Ref: ref, CallID: asked.CallID, Tool: t.id, Status: schemas.StatusError, Code: schemas.CodeInvalidArguments,
			Message: fit.message, ForModel: fit.forModel,
		}
	}
	return fact.Call{Ref: ref, CallID: asked.CallID, Tool: t.id, Input: input, Decoded: decoded}, nil
}

func (b *Bound) offers(offered []fact.Tool, name string) bool {
	for i := range offered {
		if offered[i].Name == name {
			return true
		}
	}
	return false
}

func (b *Bound) unknown(asked fact.Asked, ref fact.Ref, offered []fact.Tool) *fact.Result {
	name := cut(asked.Name, maxModelName)
	var text strings.Builder
	text.WriteString("unknown tool '" + name + "'; available: ")
	for i := range min(len(offered), maxNamesListed) {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(modelName(offered[i].Name))
	}
	if len(offered) == 0 {
		text.WriteString("none")
	}
	return &fact.Result{
		Ref: ref, CallID: asked.CallID, Tool: fact.Tool{Name: name}, Status: schemas.StatusError, Code: schemas.CodeUnknownTool,
		Message: text.String(),
	}
}

// misfit says why arguments or an output do not fit. The message holds no values; forModel may, because they are the model's own.
type misfit struct{ message, forModel string }

// arguments returns the canonical form of arguments that fit the schema and the tool's Go type, and the value of that type.
func (t *boundTool) arguments(raw []byte, limit int) ([]byte, any, *misfit) {
	if len(raw) > limit {
		return nil, nil, &misfit{message: tooLarge("$: the arguments have", len(raw), limit)}
	}
	if input, in, err := t.flatArguments(raw); err != nil {
		return nil, nil, undecodable(err)
	} else if input != nil {
		return input, in, nil
	}
	args, err := parseObject(raw, t.maxDepth)
	if err != nil {
		return nil, nil, &misfit{message: "$: " + err.Error()}
	}
	t.strip.apply(args)
	if err := t.input.validate(args); err != nil {
		return nil, nil, &misfit{message: explain(err)}
	}
	input := appendValue(make([]byte, 0, len(raw)+8), args)
	in, err := t.in.decode(input, args)
	if err != nil {
		return nil, nil, undecodable(err)
	}
	return input, in, nil
}

// flatArguments is arguments for those that fit at a glance. It returns nothing for others, be they right or wrong.
func (t *boundTool) flatArguments(raw []byte) ([]byte, any, error) {
	if t.strip != nil {
		return nil, nil, nil
	}
	var f flat
	f.read(raw, t.maxDepth)
	if !t.input.fits(&f) || f.token(0).kind != '{' {
		return nil, nil, nil
	}
	input := f.append(make([]byte, 0, len(raw)+8), 0)
	in, err := t.in.decodeFlat(input, &f)
	return input, in, err
}

// undecodable explains arguments that fit the schema but not the Go type: a number that is too large, a time that is none.
func undecodable(err error) *misfit {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return &misfit{message: "$." + wrong.Field + ": expected a value of type " + wrong.Type.String()}
	}
	return &misfit{
		message:  "$: a value does not fit the tool's types",
		forModel: "$: a value does not fit the tool's types: " + cut(err.Error(), maxReason),
	}
}
