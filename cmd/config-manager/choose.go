package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// The ways to a configuration where neither the label nor --default-config names one.
const (
	named  = "named"  // the one that is called default
	single = "single" // the only one that there is
	empty  = "empty"  // none
)

// defaultName is the configuration that named looks for.
const defaultName = "default"

// choose returns the name of the configuration that belongs to a value of the label, "" for none of them.
func (o *options) choose(label string) (string, error) {
	there, err := configurations(o.source)
	if err != nil {
		return "", err
	}
	switch {
	case label != "":
		return o.known(there, label, "the node's label "+o.nodeLabel)
	case o.preset != "":
		return o.known(there, o.preset, "--default-config")
	}
	for _, strategy := range o.fallbacks {
		switch {
		case strategy == empty:
			return "", nil
		case strategy == single && len(there) == 1:
			return there[0], nil
		case strategy == named && slices.Contains(there, defaultName):
			return defaultName, nil
		case strategy != single && strategy != named:
			return "", fmt.Errorf("--fallback-strategies has %q: want %s, %s or %s", strategy, named, single, empty)
		}
	}
	return "", fmt.Errorf("no configuration is chosen: the node has no label %s, there is no --default-config, "+
		"and --fallback-strategies (%s) finds none among %s",
		o.nodeLabel, strings.Join(o.fallbacks, ", "), strings.Join(there, ", "))
}

// known is a name that is among those that are there; whose says who names it.
func (o *options) known(there []string, name, whose string) (string, error) {
	if !slices.Contains(there, name) {
		return "", fmt.Errorf("%s names the configuration %q: %s has %s alone",
			whose, name, o.source, strings.Join(there, ", "))
	}
	return name, nil
}

// configurations lists those of a folder, sorted. Kubernetes keeps what it needs to replace a ConfigMap in
// names that begin with two dots.
func configurations(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the configurations: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if !entry.IsDir() && !strings.HasPrefix(entry.Name(), "..") {
			names = append(names, entry.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("list the configurations: %s has none", dir)
	}
	return names, nil
}
