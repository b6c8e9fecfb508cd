package server

import "github.com/kvstored/kvstored/key"

// Order is what an orchestrator wants of a prompt of one space and user: of the last
// one of Session, or that of Hashes, or that of Tokens.
type Order struct {
	UID     uint32
	Space   key.SpaceID
	Session string
	Hashes  []key.Hash
	Tokens  []uint32
	Partial bool // of tokens: a last chunk that is not a whole one counts too
}
