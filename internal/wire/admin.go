package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// PinInfo is what one connection protects of one space under one name.
type PinInfo struct {
	LookupID      string
	Space         key.SpaceID
	Connection    uint64
	Bytes         uint64 // payload
	Chunks        uint32
	ExpiresMillis uint32 // from now
}

// Holder is a connection that holds something.
type Holder struct {
	Connection uint64
	UID        uint32
	Name       string // as in its hello
	LeaseBytes uint64 // leases and fills, as budgets count them
	PinBytes   uint64
}

// PinsReply is every pin, and every connection that holds something.
type PinsReply struct {
	Pins    []PinInfo
	Holders []Holder
}

// Append implements Message.
func (m *PinsReply) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m.Pins)))
	for _, p := range m.Pins {
		dst = append(appendStr(dst, p.LookupID), p.Space[:]...)
		dst = binary.LittleEndian.AppendUint64(dst, p.Connection)
		dst = binary.LittleEndian.AppendUint64(dst, p.Bytes)
		dst = binary.LittleEndian.AppendUint32(dst, p.Chunks)
		dst = binary.LittleEndian.AppendUint32(dst, p.ExpiresMillis)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m.Holders)))
	for _, h := range m.Holders {
		dst = binary.LittleEndian.AppendUint64(dst, h.Connection)
		dst = binary.LittleEndian.AppendUint32(dst, h.UID)
		dst = appendStr(dst, h.Name)
		dst = binary.LittleEndian.AppendUint64(dst, h.LeaseBytes)
		dst = binary.LittleEndian.AppendUint64(dst, h.PinBytes)
	}
	return dst
}

// Decode implements Message.
func (m *PinsReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = PinsReply{}
	for n := c.u32("pins"); n > 0 && c.err == nil; n-- { // each takes bytes of the body
		p := PinInfo{LookupID: c.str("lookup id")}
		copy(p.Space[:], c.bytes(int64(len(p.Space)), "space"))
		p.Connection, p.Bytes = c.u64("connection"), c.u64("bytes")
		p.Chunks, p.ExpiresMillis = c.u32("chunks"), c.u32("expires")
		m.Pins = append(m.Pins, p)
	}
	for n := c.u32("holders"); n > 0 && c.err == nil; n-- {
		h := Holder{Connection: c.u64("connection"), UID: c.u32("uid"), Name: c.str("name")}
		h.LeaseBytes, h.PinBytes = c.u64("lease bytes"), c.u64("pin bytes")
		m.Holders = append(m.Holders, h)
	}
	return c.end("pins reply")
}

// RevokeWhat says what a revoke frees.
type RevokeWhat uint8

// What can be revoked.
const (
	RevokePin        RevokeWhat = 0 // the pins of a name, on every connection
	RevokePins       RevokeWhat = 1 // all pins
	RevokeConnection RevokeWhat = 2 // leases, fills and pins of a connection, which stays
)

func (w RevokeWhat) String() string { return name(revokeNames[:], uint16(w), "revoke") }

var revokeNames = [...]string{"pin", "pins", "connection"}

// RevokeRequest frees what clients protect.
type RevokeRequest struct {
	What       RevokeWhat
	LookupID   string // RevokePin
	Connection uint64 // RevokeConnection
}

// Append implements Message.
func (m *RevokeRequest) Append(dst []byte) []byte {
	dst = append(dst, byte(m.What))
	switch m.What {
	case RevokePin:
		dst = appendStr(dst, m.LookupID)
	case RevokeConnection:
		dst = binary.LittleEndian.AppendUint64(dst, m.Connection)
	}
	return noOptions(dst)
}

// Decode implements Message.
func (m *RevokeRequest) Decode(body []byte) error {
	c := requestCursor(body)
	*m = RevokeRequest{What: RevokeWhat(c.u8("what"))}
	switch m.What {
	case RevokePin:
		m.LookupID = c.str("lookup id")
	case RevokePins:
	case RevokeConnection:
		m.Connection = c.u64("connection")
	default:
		c.fail("what", "%d is unknown", m.What)
	}
	return c.endRequest("revoke", nil)
}

// PolicyRequest replaces the policy of eviction of a tier, or only asks.
type PolicyRequest struct {
	Tier Tiers  // one; 0 only asks
	Name string // of the policy
}

// Append implements Message.
func (m *PolicyRequest) Append(dst []byte) []byte {
	return noOptions(appendStr(append(dst, byte(m.Tier)), m.Name))
}

// Decode implements Message.
func (m *PolicyRequest) Decode(body []byte) error {
	c := requestCursor(body)
	m.Tier = Tiers(c.flags(uint8(tiersKnown), "tier"))
	m.Name = c.str("policy")
	switch {
	case m.Tier&(m.Tier-1) != 0:
		c.fail("tier", "%d names several; name one", m.Tier)
	case m.Tier == 0 && m.Name != "", m.Tier != 0 && m.Name == "":
		c.fail("policy", "name a tier and a policy, or neither")
	}
	return c.endRequest("policy", nil)
}

// TierPolicy is the policy of one tier.
type TierPolicy struct {
	Tier Tiers
	Name string
}

// PolicyReply is the policies that are in use, and all there are.
type PolicyReply struct {
	Tiers []TierPolicy
	Names []string
}

// Append implements Message.
func (m *PolicyReply) Append(dst []byte) []byte {
	dst = append(dst, byte(len(m.Tiers)))
	for _, t := range m.Tiers {
		dst = appendStr(append(dst, byte(t.Tier)), t.Name)
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(m.Names)))
	for _, n := range m.Names {
		dst = appendStr(dst, n)
	}
	return dst
}

// Decode implements Message.
func (m *PolicyReply) Decode(body []byte) error {
	c := replyCursor(body)
	*m = PolicyReply{}
	for n := c.u8("tiers"); n > 0 && c.err == nil; n-- {
		m.Tiers = append(m.Tiers, TierPolicy{Tiers(c.u8("tier")), c.str("policy")})
	}
	for n := c.u16("names"); n > 0 && c.err == nil; n-- {
		m.Names = append(m.Names, c.str("name"))
	}
	return c.end("policy reply")
}

// ClearRequest forgets everything in some tiers.
type ClearRequest struct {
	Tiers Tiers // 0 means DRAM and disk
}

// Append implements Message.
func (m *ClearRequest) Append(dst []byte) []byte { return noOptions(append(dst, byte(m.Tiers))) }

// Decode implements Message.
func (m *ClearRequest) Decode(body []byte) error {
	c := requestCursor(body)
	m.Tiers = Tiers(c.flags(uint8(tiersKnown), "tiers"))
	return c.endRequest("clear", nil)
}
