// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// noIntent is the value of Setup.Intent for no source.
const noIntent = "none"

// asksHTTPS reports whether the daemons query the kubelet's HTTPS server for pod requests.
func (r *Rig) asksHTTPS() bool { return strings.Contains(r.setup.Intent, "kubelet") }

// intentFlags returns the daemons' flags for sources of pod requests.
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
	return append(flags, "--kubelet-address="+https.Address, "--kubelet-token-file="+token,
			"--kubelet-ca-file="+ca),
		errors.Join(os.WriteFile(token, []byte(https.Token), 0o600), os.WriteFile(ca, https.CA, 0o644))
}

// admit admits a pod to the node.
func (r *Rig) admit(pod *v1.Pod) error {
	r.arrives(pod)
	err := r.Node.Admit(pod)
	r.decided(pod, err)
	return err
}
