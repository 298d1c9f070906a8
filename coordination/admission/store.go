package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/survive"
)

// checkpointName is the checkpoint below the run folder; badName is where one goes that cannot be trusted.
// Only one is kept.
const (
	checkpointName = "ledger.json"
	badName        = "ledger.json.bad"
	tempName       = "ledger.json.new"
)

// store keeps a coordinator's ledger in the run folder. It writes in a goroutine of its own, always the
// newest state: no answer waits for it.
type store struct {
	dir  string
	root *os.Root // the same folder, also if it was replaced: what is then at the path is another server's
	boot string
	log  *slog.Logger

	changed chan struct{} // holds a token when there is something to write
	failing bool          // the last write failed, which has been logged
}

func newStore(runDir string, log *slog.Logger) (*store, error) {
	root, err := os.OpenRoot(runDir)
	if err != nil {
		return nil, fmt.Errorf("open run folder: %w", err)
	}
	return &store{dir: runDir, root: root, boot: bootID(), log: log, changed: make(chan struct{}, 1)}, nil
}

func (s *store) close() { s.root.Close() }

// bootID identifies the running kernel's boot; "" where it cannot be read, which is then the same after every
// boot.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// touch says that there is something to write. It never blocks.
func (s *store) touch() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// run writes whenever something has changed, and once more when ctx is done. It closes the store.
func (s *store) run(ctx context.Context, save func() checkpoint) error {
	defer s.close()
	for {
		select {
		case <-s.changed:
			s.write(save())
		case <-ctx.Done():
			s.write(save())
			return nil
		}
	}
}

// write replaces the file. A failure costs nothing but what a crash would then lose; it is logged when it
// begins and when it ends.
func (s *store) write(c checkpoint) {
	c.Boot = s.boot
	err := writeCheckpoint(s.root, c)
	switch {
	case err != nil && !s.failing:
		s.log.Error("go on without a checkpoint of the ledger; free space or repair the run folder",
			"run_dir", s.dir, "error", err)
	case err == nil && s.failing:
		s.log.Info("the ledger has a checkpoint again", "run_dir", s.dir)
	}
	s.failing = err != nil
}

// writeCheckpoint writes a checkpoint so that at any time, whichever process dies, the file is the old one or
// the new one as a whole. It does not wait for the disk: what a crash of the node could lose is of a boot
// that is over.
func writeCheckpoint(root *os.Root, c checkpoint) error {
	content, err := c.encode()
	if err != nil {
		return err
	}
	if len(content) > maxCheckpoint {
		err := fmt.Errorf("the ledger takes %d bytes, more than %d", len(content), maxCheckpoint)
		return errors.Join(err, root.Remove(checkpointName)) // an old one would tell what is no longer so
	}
	if err := root.Remove(tempName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := root.OpenFile(tempName, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, root.Remove(tempName))
	}
	return root.Rename(tempName, checkpointName)
}

// load reads the checkpoint of an earlier server; false where there is none. One that cannot be trusted is
// set aside.
func (s *store) load() (checkpoint, bool) {
	c, err := readCheckpoint(s.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checkpoint{}, false
	case err != nil:
		s.setAside(err)
		return checkpoint{}, false
	case c.Boot != s.boot:
		s.log.Info("leave the checkpoint of another boot", "run_dir", s.dir)
		return checkpoint{}, false
	}
	return c, true
}

// setAside renames a checkpoint so that people can look at it and nobody reads it again.
func (s *store) setAside(reason error) {
	bad := filepath.Join(s.dir, badName)
	err := os.Rename(filepath.Join(s.dir, checkpointName), bad)
	s.log.Warn("set the checkpoint aside; who holds what is read from the kubelet",
		"file", bad, "reason", reason, "error", err)
}

// readCheckpoint reads a run folder's checkpoint, if it is a plain file of ours that nobody else can write.
func readCheckpoint(dir string) (checkpoint, error) {
	name := filepath.Join(dir, checkpointName)
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return checkpoint{}, fmt.Errorf("open checkpoint: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return checkpoint{}, fmt.Errorf("look at checkpoint: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() ||
		int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return checkpoint{}, fmt.Errorf("trust %s: it has to be a file of user %d that nobody else can write",
			name, os.Geteuid())
	}
	if info.Size() > maxCheckpoint {
		return checkpoint{}, fmt.Errorf("trust %s: it has %d bytes, more than %d", name, info.Size(), maxCheckpoint)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxCheckpoint))
	if err != nil {
		return checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	return decodeCheckpoint(content)
}

// recover goes on where an earlier server ended: with its checkpoint, if there is one to trust, reconciled
// with the kubelet's own record. The first look at PodResources and the plugins that join do the rest.
func (c *Coordinator) recover() {
	s := c.store
	saved, restored := s.load()
	if restored {
		if err := survive.Do(c.Log, func() error { return c.restore(saved) }); err != nil {
			s.setAside(err)
			restored = false
		}
	}
	now, err := c.Recorded()
	switch {
	case err != nil:
		c.Log.Info("go on without the kubelet's device checkpoint", "error", err)
	case restored:
		c.current().ledger.reconcile(now)
	default:
		c.current().ledger.adopt(now)
	}
}

// Saved lists the devices of a resource in the ledger's checkpoint, none where it cannot be used.
func Saved(runDir, resource string) []device.Device {
	saved, err := readCheckpoint(runDir)
	if err != nil || saved.Boot != bootID() {
		return nil
	}
	for _, r := range saved.Resources {
		if devices, err := r.devices(); r.Name == resource && err == nil {
			return devices
		}
	}
	return nil
}
