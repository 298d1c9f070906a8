package coordination

import (
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// version is one of coordination.proto. The minor number grows with every addition, the major one with every
// change that an older plugin would misunderstand.
type version struct{ major, minor uint32 }

// protocol is the version spoken here.
var protocol = version{1, 4}

// acknowledges reports whether the servers of this version answer each announcement, and the clients await
// that.
func (v version) acknowledges() bool { return v.minor >= 3 }

// returns reports whether the servers of this version listen for Allocates that have returned, and the
// clients say so.
func (v version) returns() bool { return v.minor >= 4 }

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// serves says why a server of this version cannot serve a client of another; nil where it can. Both sides
// ask: during a rolling update either can be the newer one.
func (v version) serves(client version) error {
	if v.major == client.major {
		return nil
	}
	return fmt.Errorf("the server speaks protocol %s and the client %s: they place devices without each other "+
		"until both plugins have the same version of Tandem", v, client)
}

// versionOf is the version that a message carries; the first one carried none.
func versionOf(m *api.Version) version {
	if m == nil {
		return version{1, 0}
	}
	return version{m.GetMajor(), m.GetMinor()}
}
