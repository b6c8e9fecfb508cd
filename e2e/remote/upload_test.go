package remote_test

import (
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/test/s3test"
)

// TestUploadBefore: chunks that were stored before there was a bucket are not said to be
// in it. An upload brings them there, once although two daemons have them, and a third
// daemon reads them right.
func TestUploadBefore(t *testing.T) {
	const chains, chunks = 4, 24
	s3 := s3test.Run(t)
	bucket := func(c *config.Config) {
		c.Remote.S3.Bucket, c.Remote.S3.Endpoint, c.Remote.S3.PathStyle = s3test.Bucket, s3.Endpoint, true
	}
	var s *load.Book
	for i, want := range []struct{ uploaded, present uint64 }{{chains * chunks, 0}, {0, chains * chunks}} {
		d := daemon.Start(t, func(c *config.Config) { c.Disk.Capacity = 1 << 30 })
		s = storeChains(t, d, chains, chunks)
		d.Stop()
		d.Configure(bucket)
		d.Start()
		sharing(t, d)
		t.Setenv("KVSTORED_SOCKET", d.Socket)
		if out := daemon.Must(t, "", "flush"); !strings.HasPrefix(out, "96 chunks stored: 96 on disk, 0 known to be in the bucket; 96 chunks (") || !strings.Contains(out, "flush --remote uploads them") {
			t.Errorf("flush: %s", out)
		}
		counted := daemon.MustJSON[struct{ Chunks, Requests uint64 }](t, "flush", "--remote", "--dry-run")
		if n, _ := objects(t, s3); counted.Chunks != chains*chunks || counted.Requests != 2*chains*chunks || n != i*chains*chunks {
			t.Errorf("dry run: %+v, and %d objects", counted, n)
		}
		r := daemon.MustJSON[struct{ Uploaded admin.Uploaded }](t, "flush", "--remote")
		if u := r.Uploaded; u.Chunks != want.uploaded || u.Present != want.present || u.Failed+u.Gone > 0 {
			t.Errorf("daemon %d: %+v", i, u)
		}
		n, bytes := objects(t, s3)
		if sent := d.Stats().Store.Tiers["remote"].PutBytes; n != chains*chunks || sent != bytes*(1-uint64(i)) {
			t.Errorf("daemon %d sent %d bytes; there are %d objects with %d bytes", i, sent, n, bytes)
		}
		if out := daemon.Must(t, "", "flush"); !strings.HasPrefix(out, "everything stored is on disk and in the bucket") {
			t.Errorf("flush after the upload: %s", out)
		}
		d.Stop()
	}
	lone := sharing(t, over(t, s3.Endpoint, func(c *config.Config) { c.Disk.Capacity = 0 }))
	s.Check(t, lone.Socket, load.Every)
}
