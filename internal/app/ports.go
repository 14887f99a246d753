package app

import (
	"context"
	"time"

	"github.com/lathe-run/lathe/internal/fact"
	"github.com/lathe-run/lathe/internal/llm"
	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/internal/turn"
)

// tracedModel answers requests under a span of their own.
type tracedModel struct {
	telemetry *Telemetry
	models    *llm.Router
}

func (m tracedModel) Respond(ctx context.Context, req *fact.Request) (*fact.Response, error) {
	ctx, span := m.telemetry.startChat(ctx, req)
	began := time.Now()
	resp, err := m.models.Respond(ctx, req)
	m.telemetry.endChat(ctx, span, req, resp, time.Since(began), err)
	return resp, err
}

// agentTools are the bound tools of an agent as the turn loop wants them; each call runs under a span of its own.
type agentTools struct {
	bound     *tools.Bound
	telemetry *Telemetry
	status    func(ctx context.Context, inv fact.Invocation, ref fact.Ref, text string)
}

func (t agentTools) Offer(narrow []string, narrowed bool, recorded []fact.Tool) (turn.Offer, error) {
	specs, ids, err := t.bound.Offer(narrow, narrowed, recorded)
	if err != nil {
		return nil, err
	}
	return offer{t.bound, specs, ids}, nil
}

func (t agentTools) Execute(ctx context.Context, call *fact.Call, inv fact.Invocation) (fact.Result, error) {
	ctx, span := t.telemetry.startTool(ctx, call, inv)
	var emit func(string)
	if t.status != nil {
		emit = func(text string) { t.status(ctx, inv, call.Ref, text) }
	}
	began := time.Now()
	res, err := t.bound.Execute(ctx, *call, tools.Invocation{
		TurnID: inv.TurnID, SessionID: inv.SessionID, Scope: inv.Scope, Durable: inv.Durable, EmitStatus: emit,
	})
	t.telemetry.endTool(ctx, span, call, inv, &res, time.Since(began), err)
	return res, err
}

// offer is what one turn is offered.
type offer struct {
	bound *tools.Bound
	specs []fact.ToolSpec
	ids   []fact.Tool
}

func (o offer) Specs() []fact.ToolSpec { return o.specs }

func (o offer) Prepare(asked fact.Asked, ref fact.Ref) (*fact.Call, *fact.Result) {
	call, refused := o.bound.Prepare(asked, ref, o.ids)
	if refused != nil {
		return nil, refused
	}
	return &call, nil
}
