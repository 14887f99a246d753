// Command support is a worker with two tools of its own: the shape of a user's program.
//
//	go run ./examples/support check
//	LATHE_BROKERS=localhost:9092 go run ./examples/support run
package main

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lathe-run/lathe"
)

// orders is what this program's tools need. A real one would hold a database handle or a client.
type orders struct {
	mu       sync.Mutex
	cents    map[string]int
	refunded map[string]int // by idempotency key
}

type lookupInput struct {
	OrderID string `json:"order_id" jsonschema:"the order's number"`
}

type order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

func lookup(c *lathe.Context, in lookupInput) (order, error) {
	o := lathe.Deps[*orders](c)
	o.mu.Lock()
	defer o.mu.Unlock()
	cents, ok := o.cents[in.OrderID]
	if !ok {
		return order{}, lathe.Safe(fmt.Errorf("no order %s", in.OrderID))
	}
	return order{in.OrderID, cents}, nil
}

type refundInput struct {
	OrderID string  `json:"order_id" jsonschema:"the order's number"`
	Cents   int     `json:"cents" jsonschema:"how much, in cents"`
	Note    *string `json:"note" jsonschema:"a note for the customer, or null"`
}

// refund pays money back. The worker starts it at most once per idempotency key; a payment provider that takes such a key
// gets the same one.
func refund(c *lathe.Context, in refundInput) (string, error) {
	o := lathe.Deps[*orders](c)
	o.mu.Lock()
	defer o.mu.Unlock()
	if in.Cents > o.cents[in.OrderID] {
		return "", lathe.Refusal("that is more than the order cost")
	}
	if in.Cents <= 0 {
		return "", lathe.NotExecuted(lathe.Poison(errors.New("the amount is not positive")))
	}
	o.refunded[c.IdempotencyKey()] += in.Cents
	return fmt.Sprintf("refunded %d cents", in.Cents), nil
}

func main() {
	lathe.Main(lathe.Program{
		Tools: []lathe.Tool{
			lathe.Define("lookup_order", lookup, lathe.ToolOptions{Description: "Looks up an order.", Effect: lathe.Read, Retry: lathe.Retries(2)}),
			lathe.Define("refund", refund, lathe.ToolOptions{Description: "Pays money back.", Effect: lathe.Write}),
		},
		Deps:    &orders{cents: map[string]int{"1001": 4500}, refunded: make(map[string]int)},
		Version: "support 1.0",
	})
}
