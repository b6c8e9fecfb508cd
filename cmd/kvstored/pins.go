package main

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
)

type pinsResult struct {
	Pins    []pinRow    `json:"pins"`
	Holders []holderRow `json:"holders"` // connections that hold something
}

type pinRow struct {
	Name           string  `json:"name"`
	Space          string  `json:"space"`
	Connection     uint64  `json:"connection"`
	Chunks         uint32  `json:"chunks"`
	Bytes          uint64  `json:"bytes"`
	ExpiresSeconds float64 `json:"expires_seconds"`
}

type holderRow struct {
	Connection uint64 `json:"connection"`
	UID        uint32 `json:"uid"`
	Name       string `json:"name"`
	LeaseBytes uint64 `json:"lease_bytes"`
	PinBytes   uint64 `json:"pin_bytes"`
}

func pinsCommand() *cobra.Command {
	var (
		socket string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "pins",
		Short: "List what is pinned, and which connections hold something",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(cmd.Context(), socket, client.Options{Inline: true}, func(c *client.Client) error {
				pins, holders, err := c.Pins(cmd.Context())
				if err != nil {
					return err
				}
				return printPins(cmd, pins, holders, asJSON)
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printPins(cmd *cobra.Command, pins []client.PinInfo, holders []client.Holder, asJSON bool) error {
	w := cmd.OutOrStdout()
	r := pinsResult{Pins: []pinRow{}, Holders: []holderRow{}}
	var byName, byConnection table
	byName.row("name", "connection", "chunks", "bytes", "ends in", "space")
	for _, p := range pins {
		left := time.Duration(p.ExpiresMillis) * time.Millisecond
		space := hex.EncodeToString(p.Space[:])
		r.Pins = append(r.Pins, pinRow{p.LookupID, space, p.Connection, p.Chunks, p.Bytes, left.Seconds()})
		byName.row(printable(p.LookupID), fmt.Sprint(p.Connection), human.Count(p.Chunks), human.Bytes(p.Bytes), human.Duration(left), space)
	}
	byConnection.row("client", "connection", "user", "leases, fills", "pins")
	for _, h := range holders {
		r.Holders = append(r.Holders, holderRow(h))
		byConnection.row(printable(h.Name), fmt.Sprint(h.Connection), fmt.Sprint(h.UID), human.Bytes(h.LeaseBytes), human.Bytes(h.PinBytes))
	}
	if asJSON {
		return printJSON(w, r)
	}
	if len(pins) == 0 {
		fmt.Fprintln(w, "nothing is pinned")
	} else {
		byName.print(w, "")
	}
	if len(holders) > 0 {
		fmt.Fprintln(w)
		byConnection.print(w, "")
	}
	return nil
}
