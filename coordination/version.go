package coordination

import (
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/api"
	program "github.com/tandem-k8s/tandem/version"
)

// version is one of coordination.proto. The minor number grows with every addition, the major one with every
// change that an older plugin would misunderstand.
type version struct{ major, minor uint32 }

// protocol is the version spoken here.
var protocol = version{2, 3}

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

// build is the version of this program, for people.
var build = program.Text

// versionOf is the version that a message carries; none is 0.0, which nobody speaks.
func versionOf(m *api.Version) version { return version{m.GetMajor(), m.GetMinor()} }
