package coordination

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"
)

// unanswered says why the server of a run folder does not answer: the folder and the socket are for root and
// the plugins' user, and where others ask, nothing is known of a server.
func unanswered(runDir string) error {
	socket := SocketPath(runDir)
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("ask %s: user %d has no right to; be root, or ask in a plugin's pod: %w",
			socket, os.Geteuid(), fs.ErrPermission)
	}
	if err == nil {
		conn.Close()
	}
	return fmt.Errorf("ask %s: nobody answers; is a plugin running on this node, with this --run-dir?", socket)
}
