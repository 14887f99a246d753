package cli

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/lathe-run/lathe/internal/tools"
	"github.com/lathe-run/lathe/schemas"
)

// shop is the demo's world: orders, refunds and mails in a small database on disk, so that what really happened can be
// counted after the worker was killed. It also counts how often each call began, by idempotency key.
type shop struct {
	db *bolt.DB
	// careless makes a refund happen twice; only the demo's own test sets it, to see the demo fail.
	careless bool
}

var (
	bucketBegan   = []byte("began")   //nolint:gochecknoglobals // A constant.
	bucketRefunds = []byte("refunds") //nolint:gochecknoglobals // A constant.
	bucketMails   = []byte("mails")   //nolint:gochecknoglobals // A constant.
)

// order is what the shop knows of one order.
type order struct {
	ID        string `json:"id"`
	Item      string `json:"item"`
	Cents     int    `json:"cents"`
	Delivered bool   `json:"delivered"`
}

func orders() map[string]order {
	return map[string]order{
		"1001": {"1001", "teapot", 4500, true},
		"1002": {"1002", "lamp", 2990, true},
		"1003": {"1003", "desk", 19900, false},
		"1007": {"1007", "chair", 9900, true},
	}
}

func openShop(path string) (*shop, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("open the shop's database: %w", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, b := range [][]byte{bucketBegan, bucketRefunds, bucketMails} {
			if _, err := tx.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the shop's database: %w", err), db.Close())
	}
	return &shop{db: db}, nil
}

func (s *shop) close() error { return s.db.Close() }

// begin counts that a call began, on disk before anything else happens.
func (s *shop) begin(key string) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketBegan)
		n := uint64(0)
		if v := b.Get([]byte(key)); v != nil {
			n = binary.BigEndian.Uint64(v)
		}
		return b.Put([]byte(key), binary.BigEndian.AppendUint64(nil, n+1))
	})
}

// put stores what an effect did.
func (s *shop) put(bucket []byte, value any) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucket)
		n, err := b.NextSequence()
		if err != nil {
			return err
		}
		body, err := json.Marshal(value)
		if err != nil {
			return err
		}
		return b.Put(binary.BigEndian.AppendUint64(nil, n), body)
	})
}

// ledger is what the shop's database says in the end.
type ledger struct {
	began          map[string]int
	refunds, mails int
}

func (s *shop) ledger() (ledger, error) {
	l := ledger{began: make(map[string]int)}
	err := s.db.View(func(tx *bolt.Tx) error {
		l.refunds, l.mails = tx.Bucket(bucketRefunds).Stats().KeyN, tx.Bucket(bucketMails).Stats().KeyN
		return tx.Bucket(bucketBegan).ForEach(func(k, v []byte) error {
			l.began[string(k)] = int(binary.BigEndian.Uint64(v)) //nolint:gosec // A count.
			return nil
		})
	})
	if err != nil {
		return l, fmt.Errorf("read the shop's database: %w", err)
	}
	return l, nil
}

type lookupInput struct {
	OrderID string `json:"order_id" jsonschema:"number of the order, four digits"`
}

type refundInput struct {
	OrderID string `json:"order_id" jsonschema:"number of the order, four digits"`
	Cents   int    `json:"cents" jsonschema:"amount in cents"`
}

type refundOutput struct {
	Refunded int `json:"refunded_cents"`
}

type mailInput struct {
	To      string `json:"to" jsonschema:"address"`
	Subject string `json:"subject" jsonschema:"subject line"`
	Body    string `json:"body" jsonschema:"text of the mail"`
}

// demoTools are the shop's three tools.
func demoTools() []tools.Tool {
	return []tools.Tool{
		tools.Define("lookup_order", lookupOrder, tools.Options{
			Description: "Looks up an order by its number.", Effect: schemas.EffectRead, Timeout: 700 * time.Millisecond,
		}),
		tools.Define("refund", refund, tools.Options{
			Description: "Pays money back for a delivered order.", Effect: schemas.EffectWrite, Timeout: 40 * time.Second,
		}),
		tools.Define("send_mail", sendMail, tools.Options{
			Description: "Sends a mail to a customer.", Effect: schemas.EffectWrite,
		}),
	}
}

func lookupOrder(c *tools.Context, in lookupInput) (order, error) {
	s := tools.From[*shop](c)
	if err := s.begin(c.IdempotencyKey()); err != nil {
		return order{}, err
	}
	if in.OrderID == "9999" { // An order that the shop's slow archive would have: it does not answer in time.
		<-c.Done()
		return order{}, c.Err()
	}
	o, ok := orders()[in.OrderID]
	if !ok {
		return order{}, tools.Safe(fmt.Errorf("no order %s", in.OrderID))
	}
	return o, nil
}

func refund(c *tools.Context, in refundInput) (refundOutput, error) {
	s := tools.From[*shop](c)
	o, ok := orders()[in.OrderID]
	if !ok || !o.Delivered {
		return refundOutput{}, tools.Refusal("only delivered orders can be refunded")
	}
	if err := s.begin(c.IdempotencyKey()); err != nil {
		return refundOutput{}, tools.NotExecuted(err)
	}
	if err := s.put(bucketRefunds, in); err != nil {
		return refundOutput{}, err
	}
	if s.careless {
		if err := errors.Join(s.begin(c.IdempotencyKey()), s.put(bucketRefunds, in)); err != nil {
			return refundOutput{}, err
		}
	}
	c.EmitStatus("refund of order " + in.OrderID + " is on its way to the bank")
	if in.OrderID == "1007" { // The bank is slow with this one, so that the worker can be killed meanwhile.
		<-c.Done()
		return refundOutput{}, c.Err()
	}
	return refundOutput{in.Cents}, nil
}

func sendMail(c *tools.Context, in mailInput) (string, error) {
	s := tools.From[*shop](c)
	if err := s.begin(c.IdempotencyKey()); err != nil {
		return "", tools.NotExecuted(err)
	}
	if err := s.put(bucketMails, in); err != nil {
		return "", err
	}
	return "sent", nil
}
