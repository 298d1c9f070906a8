// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noIntent is the value of Setup.Intent for no source.
const noIntent = "none"

// asksHTTPS reports whether the daemons query the kubelet's HTTPS server for pod requests.
func (r *Rig) asksHTTPS() bool { return strings.Contains(r.setup.Intent, "kubelet") }

// asksAPIServer reports whether the daemons ask the API server.
func (r *Rig) asksAPIServer() bool { return strings.Contains(r.setup.Intent, "api-server") }

// intentFlags returns the daemons' flags for sources of pod requests.
func (r *Rig) intentFlags() ([]string, error) {
	switch r.setup.Intent {
	case "":
		return nil, nil
	case noIntent:
		return []string{"--intent="}, nil
	}
	flags := []string{"--intent=" + r.setup.Intent}
	if r.asksAPIServer() {
		flags = append(flags, "--node-name="+nodeName)
	}
	https := r.Node.HTTPS()
	if https == nil {
		return flags, nil
	}
	token, ca := r.path("token"), r.path("ca.crt")
	return append(flags, "--kubelet-address="+https.Address, "--kubelet-token-file="+token,
			"--kubelet-ca-file="+ca),
		errors.Join(os.WriteFile(token, []byte(https.Token), 0o600), os.WriteFile(ca, https.CA, 0o644))
}

// startAPIServer starts the API server if it is a source of pod requests. It returns the folder of the
// daemons' service account, and their environment variables.
func (r *Rig) startAPIServer() (account string, variables []string, err error) {
	if !r.asksAPIServer() {
		return "", nil, nil
	}
	account = r.path("account")
	if r.API, err = serveAPI(account); err != nil {
		return "", nil, err
	}
	return account, r.API.variables(), nil
}

// admit admits a pod to the node. The API server gets the pod before, and the result from the kubelet.
func (r *Rig) admit(pod *v1.Pod) error {
	r.arrives(pod)
	if r.API == nil {
		err := r.Node.Admit(pod)
		r.decided(pod, err)
		return err
	}
	r.API.Bind(pod)
	err := r.Node.Admit(pod)
	r.decided(pod, err)
	r.API.setStatus(pod, func(status *v1.PodStatus) {
		now := metav1.Now()
		if status.StartTime = &now; err != nil {
			status.Phase = v1.PodFailed
		}
	})
	return err
}
