package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lathe-run/lathe/internal/app"
)

func newTail(_ app.Program, env Env) *cobra.Command {
	var turn string
	var asJSON, fromStart, status bool
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print events as they come",
		Long: `Prints the events of all turns, or of one, as they are committed, those of each turn in order. It reads the output
topics without joining the workers' group and changes nothing.`,
		Example: `  worker tail
  worker tail --turn t-1 --from-start
  worker tail --json | jq 'select(.type=="turn:end")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, _, release := signals(cmd.Context())
			defer release()
			s, err := loadSettings(ctx, env, true)
			if err != nil {
				return err
			}
			registry, err := app.NewRegistry(s)
			if err != nil {
				return refusedError{err}
			}
			r, err := openReader(ctx, s, registry, readerOptions{fromEnd: !fromStart, status: status})
			if err != nil {
				return err
			}
			defer r.close()
			return tail(ctx, r, newPrinter(env.Stdout, asJSON), turn)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&turn, "turn", "", "only the events of this turn; ends with the turn")
	fl.BoolVar(&asJSON, "json", false, "print JSON lines")
	fl.BoolVar(&fromStart, "from-start", false, "begin with what the topics still hold")
	fl.BoolVar(&status, "status", false, "add ephemeral events: what tools say about their progress")
	return cmd
}

// tail prints until ctx ends, or the one turn that was asked for has.
func tail(ctx context.Context, r *reader, p *printer, turn string) error {
	var wanted func(string) bool
	if turn != "" {
		wanted = func(id string) bool { return id == turn }
	}
	for {
		events, err := r.next(ctx, wanted)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, ev := range events {
			p.print(ev)
			if _, ended := endOf(ev); ended && turn != "" {
				return nil
			}
		}
	}
}
