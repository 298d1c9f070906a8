// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"

	"github.com/tandem-k8s/tandem/coordination/fswatch"
)

// listen binds the coordination socket. Must be called with the lock: an existing socket then belongs to an
// ended process. The caller removes the socket, unless another process has replaced the socket.
func listen(runDir string) (*net.UnixListener, error) {
	name := SocketPath(runDir)
	if err := CheckSocketPlace(name); err != nil {
		return nil, err
	}
	if err := removeSocket(runDir); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("bind coordination socket: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	if err := os.Chmod(name, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("close socket to others: %w", err)
	}
	return listener, nil
}

func removeSocket(runDir string) error {
	if err := os.Remove(SocketPath(runDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove coordination socket: %w", err)
	}
	return nil
}

// errReplaced means that the socket in the run directory is gone or belongs to another process.
var errReplaced = errors.New("the coordination socket was removed or replaced")

// awaitReplaced checks the socket until ctx is done, and returns an error after a replacement of the socket.
// Each change of the file, such as removal or replacement, causes a check. Further checks every electionPause
// detect changes of parent directories, also on file systems without notification. Each check calls looked.
func awaitReplaced(ctx context.Context, runDir string, looked func()) error {
	path := SocketPath(runDir) // not the directory, with its many writes
	ours, ok := fswatch.Identify(path)
	if !ok {
		return errReplaced
	}
	watch := fswatch.Watch{Paths: []string{path}, Interval: electionPause}
	return watch.Run(ctx, func() error {
		if now, _ := fswatch.Identify(path); now != ours {
			return errReplaced
		}
		looked()
		return nil
	})
}

// limitedListener rejects connections beyond maxConnections.
type limitedListener struct {
	*net.UnixListener
	slots chan struct{}
}

func newLimitedListener(l *net.UnixListener) limitedListener {
	return limitedListener{l, make(chan struct{}, maxConnections)}
}

// Accept returns the next connection within the limit, and closes other connections.
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &countedConn{conn, sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			conn.Close()
		}
	}
}

// countedConn returns the slot when closed.
type countedConn struct {
	*net.UnixConn
	done func()
}

func (c *countedConn) Close() error {
	defer c.done()
	return c.UnixConn.Close()
}
