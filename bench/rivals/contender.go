package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
)

// cellTimeout is how long a cell may take: a rival that hangs is left out from there on.
const cellTimeout = 2 * time.Minute

// errOther says that a rival returned other bytes than it was given.
var errOther = errors.New("wrong bytes")

// contender is a rival that runs. One goroutine calls its methods.
type contender struct {
	name  string
	What  string `json:"what"` // the client's name and version
	Pings bool   `json:"pings"`
	gone  bool

	processes measure.Processes
	client    *measure.Process
	orders    io.Writer
	answers   *bufio.Scanner
}

// connect starts the client and waits for its name.
func (c *contender) connect(command, env []string, log string) error {
	cmd := exec.Command(command[0], command[1:]...)
	orders, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	read, write, err := os.Pipe() // StdoutPipe's would be closed by Wait before all is read
	if err != nil {
		return err
	}
	defer write.Close() // the client has its own
	cmd.Stdout = write
	c.orders, c.answers = orders, bufio.NewScanner(read)
	c.answers.Buffer(nil, 1<<20)
	c.client, err = c.processes.Launch(cmd, env, log)
	if err != nil {
		return err
	}
	late := time.AfterFunc(measure.StartTimeout, c.client.End)
	defer late.Stop()
	if !c.answers.Scan() {
		return c.client.Failed("has ended")
	}
	return json.Unmarshal(c.answers.Bytes(), c)
}

// play has the client do a cell: nanoseconds of each call, by what it was.
func (c *contender) play(ctx context.Context, cell cell) (map[string][]float64, error) {
	order, err := json.Marshal(cell)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cellTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, c.client.End)()
	if _, err := c.orders.Write(append(order, '\n')); err != nil || !c.answers.Scan() {
		return nil, c.client.Failed("has ended")
	}
	var answer struct {
		Put, Get, Ping []float64
		Error          string
		Other          bool
	}
	if err := json.Unmarshal(c.answers.Bytes(), &answer); err != nil {
		return nil, err
	}
	switch {
	case answer.Other:
		return nil, fmt.Errorf("%w: %s", errOther, answer.Error)
	case answer.Error != "":
		return nil, errors.New(answer.Error)
	}
	took := map[string][]float64{"ping": answer.Ping, "get": answer.Get, "put": answer.Put}
	for what, each := range took {
		if len(each) == 0 {
			delete(took, what)
		}
	}
	return took, nil
}
