package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/config"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// Settings are what a node needs that the kubelet's configuration does not have yet.
func Settings(n Node) ([]config.Setting, error) {
	k, err := readKubelet(n)
	if err != nil {
		return nil, err
	}
	e := &examination{Node: n, kubelet: k}
	e.topologyPolicy()
	e.topologyScope()
	e.closestNodes()
	e.cpuManager()
	found := map[string]bool{}
	for _, f := range e.findings {
		found[f.ID] = true
	}
	if e.kubelet.Policy == "none" { // under which these two are not looked at
		found["topology-scope"] = e.kubelet.Scope != "container"
		found["closest-nodes"] = len(e.Tree.NUMANodes()) > 2 &&
			e.kubelet.PolicyOptions["prefer-closest-numa-nodes"] != "true"
	}
	var settings []config.Setting
	add := func(id, key string, value any) {
		if found[id] {
			settings = append(settings, config.Setting{Key: key, Value: value})
		}
	}
	add("topology-policy", "topologyManagerPolicy", "restricted")
	add("topology-scope", "topologyManagerScope", "container")
	add("closest-nodes", "topologyManagerPolicyOptions", map[string]string{"prefer-closest-numa-nodes": "true"})
	add("cpu-manager", "cpuManagerPolicy", "static")
	if reserved, err := e.reserved(); found["reserved-cpus"] ||
		found["cpu-manager"] && (err != nil || len(reserved) == 0) {
		settings = append(settings, config.Setting{Key: "reservedSystemCPUs", Value: e.suggestedCPUs()})
	}
	return settings, e.above(settings)
}

// DropIn is the file of our own in the kubelet's folder of drop-ins. Its name puts it behind what others
// write there.
const DropIn = "99-tandem.conf"

// NewDropIn is that file without settings.
const NewDropIn = "# Made by tandem doctor --fix-kubelet. tandem doctor --rollback-kubelet removes it.\n" +
	"apiVersion: " + configuration.Version + "\nkind: " + configuration.Kind + "\n"

// Target is the file that settings go into: the one of our own where the kubelet has a folder of drop-ins,
// else its configuration.
func (n Node) Target() (file string, own bool) {
	config, dir := n.Files()
	if dir != "" {
		return filepath.Join(dir, DropIn), true
	}
	return config, false
}

// above names what the target cannot change: a flag or a drop-in stands above it.
func (e *examination) above(settings []config.Setting) error {
	target, own := e.Target()
	config, dir := e.Files()
	for _, s := range settings {
		origin, ok := e.kubelet.origin[s.Key]
		if !ok || origin == config || own && before(dir, origin) {
			continue
		}
		return fmt.Errorf("%s is set by %s, which stands above %s: change it there", s.Key, origin, target)
	}
	return nil
}

// before reports whether the kubelet reads a file of its folder of drop-ins before ours, or it is ours.
func before(dir, file string) bool {
	name, err := filepath.Rel(dir, file)
	if err != nil || strings.HasPrefix(name, "..") {
		return false // a flag
	}
	first, _, _ := strings.Cut(name, string(filepath.Separator))
	return first <= DropIn
}
