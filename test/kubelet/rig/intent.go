package rig

import (
	"errors"
	"os"
	"strings"
)

// noIntent is the value of Setup.Intent for no source at all.
const noIntent = "none"

// asksHTTPS reports whether the daemons ask the kubelet's HTTPS server what pods want.
func (r *Rig) asksHTTPS() bool { return strings.Contains(r.setup.Intent, "kubelet") }

// intentFlags are the daemons' flags that say how to know what pods want.
func (r *Rig) intentFlags() ([]string, error) {
	switch r.setup.Intent {
	case "":
		return nil, nil
	case noIntent:
		return []string{"--intent="}, nil
	}
	flags := []string{"--intent=" + r.setup.Intent}
	https := r.Node.HTTPS()
	if https == nil {
		return flags, nil
	}
	token, ca := r.path("token"), r.path("ca.crt")
	return append(flags, "--kubelet-address="+https.Address, "--kubelet-token-file="+token, "--kubelet-ca-file="+ca),
		errors.Join(os.WriteFile(token, []byte(https.Token), 0o600), os.WriteFile(ca, https.CA, 0o644))
}
