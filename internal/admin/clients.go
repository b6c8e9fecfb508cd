package admin

import (
	"encoding/hex"

	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/version"
	"github.com/kvstored/kvstored/key"
)

// maxListed is how many pins, and how many connections, one reply lists.
const maxListed = 4096

func (c *call) version(*None) (*Version, error) {
	v := Version{Version: version.String()}
	for i := range c.routes {
		v.Calls = append(v.Calls, c.routes[i].method+" "+c.routes[i].path)
	}
	return &v, nil
}

func (c *call) config(*None) (*Config, error) {
	cfg, err := c.o.Config()
	return &cfg, err
}

func (c *call) pins(*None) (*Pins, error) {
	pins, holders, more := c.o.Server.Held(maxListed)
	reply := Pins{Pins: []Pin{}, Holders: []Holder{}, LeftOut: more}
	for _, p := range pins {
		reply.Pins = append(reply.Pins, Pin{p.Name, hex.EncodeToString(p.Space[:]), p.Connection, p.Chunks, p.Bytes, p.Left.Seconds()})
	}
	for _, h := range holders {
		reply.Holders = append(reply.Holders, Holder(h))
	}
	return &reply, nil
}

func (c *call) revoke(q *RevokeRequest) (*Chunks, error) {
	s, given, chunks := c.o.Server, 0, 0
	for _, is := range []bool{q.Name != nil, q.AllPins, q.Connection != nil} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, refuse(BadRequest, "give one of name, all_pins and connection, not %d", given)
	case q.Name != nil:
		chunks = s.RevokePin(*q.Name)
	case q.AllPins:
		chunks = s.RevokePins()
	default:
		var ok bool
		if chunks, ok = s.RevokeConnection(*q.Connection); !ok {
			e := refuse(NotFound, "there is no connection %d", *q.Connection)
			e.Do = "`kvstored pins` lists those that hold something"
			return nil, e
		}
	}
	return &Chunks{uint64(chunks)}, nil
}

func (c *call) spaces(q *SpacesRequest) (*Spaces, error) {
	var after key.SpaceID
	if q.After != "" {
		var err error
		if after, err = spaceID("after", q.After); err != nil {
			return nil, err
		}
	}
	uses, more := c.o.Server.Spaces(c.uid, after)
	reply := Spaces{Spaces: []Space{}}
	for i := range uses {
		reply.Spaces = append(reply.Spaces, spaceOf(&uses[i]))
	}
	if more {
		reply.Next = reply.Spaces[len(uses)-1].Space
	}
	return &reply, nil
}

func spaceOf(u *server.SpaceUse) Space {
	out := Space{hex.EncodeToString(u.ID[:]), u.Chunks, u.HotBytes, u.DiskBytes, u.MaxAge.Seconds(), u.Connections, u.Front, nil}
	if s := &u.Space; u.Opened && u.Front == "" {
		out.Opened = &Opened{
			Model: s.Model, Revision: s.Revision, LoRA: s.LoRA, World: s.World, Worker: s.Worker, DType: s.DType,
			ChunkTokens: s.ChunkTokens, Method: string(s.Method), Group: s.Group, Salted: s.SaltDigest != key.Hash{},
			Tags: make(map[string]string),
		}
		for _, t := range s.Tags {
			out.Opened.Tags[t.Name] = t.Value
		}
	}
	return out
}

// spaceID reads the id of a space.
func spaceID(field, text string) (id key.SpaceID, err error) {
	digits, err := hex.DecodeString(text)
	if err != nil || len(digits) != len(id) {
		e := refuse(BadRequest, "%s: %.80q is no space", field, text)
		e.Do = "give its 32 hex digits, as `kvstored spaces` shows them"
		return id, e
	}
	return key.SpaceID(digits), nil
}
