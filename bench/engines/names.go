package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
)

const (
	manyNames  = 1000     // asked for in one command
	fewNames   = 16       // read in one command
	namesBytes = 64 << 10 // of each value
)

// question is a command of many names and its reply.
type question struct {
	what    string
	command []byte
	reply   string
	values  int          // that follow, of namesBytes
	before  func() error // of each, if there is anything to do
}

// many times commands of many names, one client, in turns.
func many(servers []*contender, rounds int) error {
	there, value := numbered("there", manyNames), make([]byte, namesBytes)
	all := fmt.Sprintf(":%d\r\n", manyNames)
	fill := func() error {
		for _, s := range servers {
			for _, name := range there {
				if err := s.clients[0].set(name, value); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
		}
		return nil
	}
	if err := fill(); err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tredis us\tkvstored us\ttimes redis\t")
	for _, q := range []question{
		{what: "EXISTS of 1,000, all there", command: command("EXISTS", there), reply: all},
		{what: "EXISTS of 1,000, none there", command: command("EXISTS", numbered("nowhere", manyNames)), reply: ":0\r\n"},
		{what: "MGET of 16 x 64 KiB", command: command("MGET", there[:fewNames]), reply: fmt.Sprintf("*%d\r\n", fewNames), values: fewNames},
		{what: "DEL of 1,000", command: command("DEL", there), reply: all, before: fill},
	} {
		var took [2][]float64
		times := 100 * rounds
		if q.before != nil {
			times = rounds
		}
		for round := range times {
			if q.before != nil {
				if err := q.before(); err != nil {
					return err
				}
			}
			for i := range servers {
				which := (i + round) % len(servers)
				begun := time.Now()
				if err := servers[which].clients[0].ask(&q); err != nil {
					return fmt.Errorf("%s: %w", servers[which].name, err)
				}
				took[which] = append(took[which], time.Since(begun).Seconds())
			}
		}
		redis, ours := measure.Median(took[0]), measure.Median(took[1])
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.2f\t\n", q.what, 1e6*redis, 1e6*ours, redis/ours)
	}
	return w.Flush()
}

// numbered is names as an engine's connector makes them.
func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s:model@1@0@%032x", prefix, i))
	}
	return names
}

func command(what string, names []string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n$%d\r\n%s\r\n", len(names)+1, len(what), what)
	for _, name := range names {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(name), name)
	}
	return b
}

// ask sends a command and reads its reply.
func (c *client) ask(q *question) error {
	c.head = c.head[:0]
	if err := c.send(q.command); err != nil {
		return err
	}
	if err := c.expect(q.reply); err != nil {
		return err
	}
	for range q.values {
		if err := c.expect(fmt.Sprintf("$%d\r\n", namesBytes)); err != nil {
			return err
		}
		if _, err := c.in.Discard(namesBytes); err != nil {
			return err
		}
		if err := c.expect("\r\n"); err != nil {
			return err
		}
	}
	return nil
}
