package disk

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Where the database may not even delete, a deletion fails and waits: nothing
// waits for it, the end least of all.
func TestDeleteWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		m := newMemory(t)
		d, stop := start(t, o, nil)
		mustPut(t, d, m, 1, 100_000)
		mustPut(t, d, m, 2, 100_000)
		stop()

		d, err := openRig(o)
		if err != nil {
			t.Fatal(err)
		}
		d.budget.floor = math.MaxInt64 // as if the file system were full
		ran := make(chan error, 1)
		go func() { ran <- d.Run(context.Background()) }()
		recoverAll(t, d)
		wantErr(t, d.Delete(context.Background(), []key.Key{keyOf(1)}), tier.ErrNoSpace)
		wantErr(t, put(t, d, m, 3, 100_000), tier.ErrNoSpace)
		mustGet(t, d, m, 2, 100_000)
		ended := make(chan error, 1)
		go func() { ended <- d.Close() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the tier does not close")
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}
