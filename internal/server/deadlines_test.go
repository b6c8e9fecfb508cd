package server

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// TestDeadlinesAreToldOnceAMinute: the log tells of the first late prefix at once, and of all
// that follow in one line a minute; of those that are neither late nor slow it tells nothing.
func TestDeadlinesAreToldOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l deadlineStats
		var text bytes.Buffer
		log := zerolog.New(&text)
		one := func(took time.Duration, lacks uint64) {
			l.log(&log, &missed{since: time.Now(), took: took, name: asked{lookupID: "req"}}, []byte{1}, lacks)
			time.Sleep(time.Second)
		}
		one(slowPrefix-1, 0)
		if text.Len() > 0 {
			t.Fatalf("%s", text.String())
		}
		for range 50 {
			one(20*time.Millisecond, 10)
			one(2*time.Second, 0)
		}
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `"level":"warn","late":1,"slow":0,"late_tokens":10,"longest":20,"space":"01","lookup_id":"req"`) ||
			!strings.Contains(lines[1], `"late":30,"slow":30,"late_tokens":300,"longest":2000`) {
			t.Errorf("%q", lines)
		}
	})
}
