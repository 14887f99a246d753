package tools

import (
	"errors"

	"github.com/lathe-run/lathe/schemas"
)

// CheckAnswerSchema refuses an output_schema that no answer could be checked against. The error is of code invalid_turn.
func CheckAnswerSchema(raw []byte) error {
	if _, faults := compile(raw, "output"); len(faults) > 0 {
		return &schemas.Error{Code: schemas.CodeInvalidTurn, Path: "output_schema", Message: faults[0].text}
	}
	return nil
}

// CheckAnswer checks a model's final answer against the turn's output_schema. The error is of code invalid_output and names the
// place; it holds no value.
func CheckAnswer(raw, answer []byte) error {
	s, faults := compile(raw, "output")
	if len(faults) > 0 {
		return schemas.Errorf(schemas.CodeInvalidOutput, "the schema cannot be used: %s", faults[0].text)
	}
	v, err := parse(answer)
	if err != nil {
		return &schemas.Error{Code: schemas.CodeInvalidOutput, Message: "the answer is not JSON", Err: err}
	}
	if err := s.validate(v); err != nil {
		return &schemas.Error{Code: schemas.CodeInvalidOutput, Message: explain(err), Err: errors.New("it does not fit output_schema")}
	}
	return nil
}
