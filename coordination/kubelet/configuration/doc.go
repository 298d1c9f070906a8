// Package configuration reads files of the kubelet's configuration as the kubelet does.
package configuration
