// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"
)

// Defaults of the RDMA shared device plugin: rdmaHcaResourcePrefix and defaultPeriodicUpdateInterval in
// pkg/resources/resources_manager.go.
const (
	sharedPrefix   = "rdma"
	sharedInterval = 60 // seconds
)

// sharedList are the keys at the top of a configuration of the RDMA shared device plugin
// (Mellanox/k8s-rdma-shared-dev-plugin, UserConfigList in pkg/types/types.go).
type sharedList struct {
	ConfigList []json.RawMessage `json:"configList"`
	Interval   *int              `json:"periodicUpdateInterval"` // seconds; 0 for never
}

// sharedResource is an element of configList (UserConfig, same place), with Tandem's additional keys.
type sharedResource struct {
	Name       string          `json:"resourceName"`
	Prefix     string          `json:"resourcePrefix"`
	Max        int             `json:"rdmaHcaMax"`
	Devices    []string        `json:"devices"` // the older word for the selector ifNames
	Selectors  json.RawMessage `json:"selectors"`
	NoTopology Exclusion       `json:"excludeTopology"` // as of a resource of resourceList
	Tandem     json.RawMessage `json:"tandem"`
	Health     `json:"-"`
}

// sharedSelector has the conditions for an HCA (Selectors, same place). Every list must be fulfilled, by any
// of its values.
type sharedSelector struct {
	Vendors   []string `json:"vendors"`
	DeviceIDs []string `json:"deviceIDs"`
	Drivers   []string `json:"drivers"`
	IfNames   []string `json:"ifNames"` // the HCA's first netdev
	LinkTypes []string `json:"linkTypes"`
}

// Keys of selectors are often written into the resource, and vice versa.
var (
	intoSharedSelectors = place{keysOf(reflect.TypeFor[sharedSelector]()), "put it into selectors"}
	besideSharedOnes    = place{
		keysOf(reflect.TypeFor[sharedResource]()), "put it beside selectors, not into it",
	}
)

// addShared adds the resources of configList. Mistakes in them make the stock plugin exit with a failure.
func (c *Config) addShared(list sharedList) error {
	if list.ConfigList == nil {
		return nil
	}
	if len(list.ConfigList) == 0 {
		return errors.New("configList is empty")
	}
	seconds := sharedInterval
	if list.Interval != nil {
		seconds = *list.Interval
	}
	if seconds < 0 || seconds > math.MaxInt32 {
		return fmt.Errorf("periodicUpdateInterval is %d; want a number of seconds, or 0 for never", seconds)
	}
	c.Interval = time.Duration(seconds) * time.Second
	first := 0
	for i, raw := range list.ConfigList {
		r, err := c.readShared(i+1, raw)
		if err != nil {
			return err
		}
		r.firstReplica = first
		first += r.Replicas
		if err := r.checkName(); err != nil {
			c.warn("resource %q is left out: %v", r.Name, err)
			continue
		}
		c.Resources = append(c.Resources, r)
	}
	return nil
}

// readShared reads the resource at a position of configList.
func (c *Config) readShared(position int, raw json.RawMessage) (ResourceConfig, error) {
	var s sharedResource
	err := json.Unmarshal(raw, &s)
	name := label(s.Name, position, "configList")
	if err != nil {
		return ResourceConfig{}, fmt.Errorf("%s: %w", name, explain(err, raw))
	}
	r := ResourceConfig{
		Name: s.Name, Prefix: s.Prefix, DeviceType: SharedHCA, ExcludeTopology: s.NoTopology, Replicas: s.Max,
	}
	if r.Prefix == "" {
		r.Prefix = sharedPrefix
	}
	c.warnUnknown(name+": ", raw, s, intoSharedSelectors)
	if err := c.checkNew(name, r); err != nil {
		return r, err
	}
	if s.Max < 0 || s.Max > math.MaxInt32 {
		return r, fmt.Errorf("%s: rdmaHcaMax is %d; want how many containers may share an HCA", name, s.Max)
	}
	if s.Max == 0 {
		c.warn("%s: rdmaHcaMax is 0 or missing: nothing is offered", name)
	}
	selector, err := s.selector(c, name)
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	r.Selectors = []Selector{selector}
	c.addOwn(name, raw, s.Tandem, &r)
	if r.Tandem.Variables == nil && !r.Tandem.AllHCAs {
		r.Tandem.Variables = []string{"NCCL_IB_HCA"}
	}
	return r, nil
}

// selector returns the selector of the resource's HCAs. As in ValidateConfigs of the stock plugin exactly one
// of selectors and devices is required.
func (s *sharedResource) selector(c *Config, name string) (Selector, error) {
	var keys sharedSelector
	if len(s.Selectors) > 0 {
		if err := json.Unmarshal(s.Selectors, &keys); err != nil {
			return Selector{}, fmt.Errorf("selectors: %w", explain(err, s.Selectors))
		}
		c.warnUnknown(name+": selectors: ", s.Selectors, keys, besideSharedOnes)
	}
	conditions := slices.Concat(keys.Vendors, keys.DeviceIDs, keys.Drivers, keys.IfNames, keys.LinkTypes)
	switch {
	case len(conditions) == 0 && len(s.Devices) == 0:
		return Selector{}, errors.New(`selectors is missing or empty; name what is shared, as {"ifNames": ["ib0"]}`)
	case len(conditions) > 0 && len(s.Devices) > 0:
		return Selector{}, errors.New("selectors and devices exclude each other: " +
			"put devices into selectors, as ifNames")
	case len(conditions) == 0:
		keys.IfNames = s.Devices
	}
	var selector Selector
	selector.functionSelector = functionSelector{
		Vendors: keys.Vendors, Devices: keys.DeviceIDs, Drivers: keys.Drivers,
	}
	selector.LinkTypes, selector.ifNames, selector.IsRDMA = keys.LinkTypes, keys.IfNames, true
	c.warnAll(name+": selectors: ", selector.warnings(sharedDevices))
	return selector, nil
}
