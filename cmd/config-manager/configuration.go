// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// keeper installs configurations.
type keeper struct {
	options
	proc string // "/proc"
	log  *slog.Logger
}

// again is the pause after a failed installation of a configuration: a ConfigMap can change without a change
// of the label.
const again = 30 * time.Second

// runUntilDone installs the configuration of each value of the label, or only of the first value, until ctx
// is done. It returns the first error, and the container restarts, unless wait is set.
func (k *keeper) runUntilDone(ctx context.Context, labels <-chan string) error {
	k.log.Info("waiting for the label", "node", k.nodeName, "label", k.nodeLabel)
	var label, told string
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case label = <-labels:
		case <-retry:
		}
		err := k.updateTarget(label)
		switch {
		case err == nil && !k.oneshot:
			told, retry = "", nil
		case err == nil || !k.wait:
			return err
		default:
			retry = time.After(again)
			if err.Error() != told {
				told = err.Error()
				k.log.Error("no configuration for the label; the current configuration stays", "error", err)
			}
		}
	}
}

// updateTarget installs the configuration of a value of the label, and signals the plugin if the
// configuration changed or if an earlier signal failed. A file next to the target marks a pending signal,
// from before the change until after the signal. So neither a failure nor the end of this process leaves the
// plugin with its old configuration.
func (k *keeper) updateTarget(label string) error {
	name, err := k.chooseName(label)
	if err != nil {
		return err
	}
	source := "/dev/null"
	if name != "" {
		source = filepath.Join(k.source, name)
	}
	due := k.target + ".signal-due"
	there, err := isLinked(k.target, source)
	if err != nil {
		return err
	}
	if !there {
		if k.send {
			if err := os.WriteFile(due, nil, 0o600); err != nil {
				return fmt.Errorf("note that a signal is due: %w", err)
			}
		}
		if err := linkTarget(source, k.target); err != nil {
			return fmt.Errorf("put the configuration in place: %w", err)
		}
	}
	k.log.Info("configuration selected", "label", label, "file", source, "changed", !there)
	if !k.send {
		return nil
	}
	switch _, err := os.Stat(due); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("find out if a signal is due: %w", err)
	}
	if err := k.signalPlugin(); err != nil {
		return err
	}
	if err := os.Remove(due); err != nil {
		return fmt.Errorf("note that the signal has been sent: %w", err)
	}
	return nil
}

// isLinked reports whether target is already a link to source.
func isLinked(target, source string) (bool, error) {
	wanted, err := filepath.EvalSymlinks(source)
	if err != nil {
		return false, fmt.Errorf("find the configuration: %w", err)
	}
	now, err := filepath.EvalSymlinks(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look at --config-file-dst: %w", err)
	}
	return err == nil && now == wanted, nil
}

// linkTarget makes target a link to source, atomically.
func linkTarget(source, target string) error {
	next := target + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(source, next); err != nil {
		return err
	}
	return os.Rename(next, target)
}

// signalPlugin sends the signal to the plugin.
func (k *keeper) signalPlugin() error {
	processes, err := findProcesses(k.proc, k.process)
	if err != nil {
		return err
	}
	for _, pid := range processes {
		if err := syscall.Kill(pid, syscall.Signal(k.signal)); err != nil {
			return fmt.Errorf("send signal %d to process %d, %s: %w", k.signal, pid, k.process, err)
		}
		k.log.Info("sent signal", "signal", k.signal, "process", k.process, "pid", pid)
	}
	return nil
}

// stockPlugin is the name of NVIDIA's plugin, which the GPU operator and NVIDIA's chart pass. The image has
// Tandem's daemon under this name too; it is also found under its own name.
const (
	stockPlugin = "nvidia-device-plugin"
	ownPlugin   = "tandem-gpu"
)

// findProcesses returns the processes that were started under a name, in any directory. It returns an error
// if there is none, because the plugin would keep its old configuration.
func findProcesses(proc, name string) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, entry.Name(), "cmdline"))
		if err != nil {
			continue // the process has ended
		}
		started, _, _ := strings.Cut(string(line), "\x00")
		program := filepath.Base(started)
		if program == name || name == stockPlugin && program == ownPlugin {
			found = append(found, pid)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("find the process %s, to send it a signal: there is none in this pod; "+
			"the pod has to have shareProcessNamespace", name)
	}
	return found, nil
}

// Fallback values of --fallback-strategies: the choice of a configuration if neither the label nor
// --default-config names one.
const (
	named  = "named"  // the configuration with the name default
	single = "single" // the only configuration
	empty  = "empty"  // no configuration
)

// defaultName is the name of the configuration of the strategy named.
const defaultName = "default"

// chooseName returns the name of the configuration for a value of the label, "" for none.
func (o *options) chooseName(label string) (string, error) {
	there, err := listConfigurations(o.source)
	if err != nil {
		return "", err
	}
	switch {
	case label != "":
		return o.checkKnown(there, label, "the node's label "+o.nodeLabel)
	case o.preset != "":
		return o.checkKnown(there, o.preset, "--default-config")
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

// checkKnown checks that a configuration exists; whose names the source of the name in the error.
func (o *options) checkKnown(there []string, name, whose string) (string, error) {
	if !slices.Contains(there, name) {
		return "", fmt.Errorf("%s names the configuration %q: %s has %s alone",
			whose, name, o.source, strings.Join(there, ", "))
	}
	return name, nil
}

// listConfigurations returns the configurations of a directory, sorted. Entries with two leading dots belong
// to Kubernetes' atomic update of ConfigMaps.
func listConfigurations(dir string) ([]string, error) {
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

// watchLabel sends the value of a node's label, and each new value, until ctx is done; "" for a node without
// the label. If several values arrive before the receiver reads, it sends the last one.
func watchLabel(ctx context.Context, config *rest.Config, node, label string) (<-chan string, error) {
	client, err := nodesClient(config)
	if err != nil {
		return nil, err
	}
	labels := make(chan string, 1)
	offer := func(object any) {
		value := object.(*corev1.Node).Labels[label]
		select {
		case <-labels: // drops an outdated value
		default:
		}
		labels <- value
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, "nodes", metav1.NamespaceAll,
			fields.OneTermEqualSelector("metadata.name", node)),
		ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: offer,
			UpdateFunc: func(before, now any) {
				if before.(*corev1.Node).Labels[label] != now.(*corev1.Node).Labels[label] {
					offer(now)
				}
			},
		},
	})
	go informer.RunWithContext(ctx)
	return labels, nil
}

// nodesClient returns a client for Nodes: client-go's clientset would add every API of Kubernetes to the
// binary, 23 MB.
func nodesClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.NodeList{})
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return client, nil
}
