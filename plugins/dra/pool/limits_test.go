// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

func TestPoolsKeepTheLimitsOfTheAPI(t *testing.T) {
	t.Parallel()
	everywhere(t, andMany, func(t *testing.T, machine pool.Machine, options pool.Options) {
		check(t, pool.Build(machine, options), options)
	})
}

// check finds what the API server would refuse or the scheduler could not use (pkg/apis/resource/validation
// of Kubernetes, resourceslice/validation.go of k8s.io/dynamic-resource-allocation), and what a pool says of
// itself that is not so.
func check(t testing.TB, p pool.Pool, options pool.Options) {
	t.Helper()
	sets := map[string]resourceapi.CounterSet{}
	seen := map[string]bool{}
	for n, slice := range p.Slices {
		if len(slice.Devices) > 0 == (len(slice.SharedCounters) > 0) {
			t.Errorf("slice %d has %d devices and %d counter sets", n, len(slice.Devices), len(slice.SharedCounters))
		}
		// 128 without counters and taints: a taint may come
		most(t, "devices of a slice", len(slice.Devices), resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures)
		most(t, "counter sets", len(slice.SharedCounters), resourceapi.ResourceSliceMaxCounterSets)
		for _, set := range slice.SharedCounters {
			if _, twice := sets[set.Name]; twice {
				t.Errorf("counter set %s is there twice", set.Name)
			}
			sets[set.Name] = set
			isLabel(t, set.Name)
			most(t, "counters of "+set.Name, len(set.Counters), resourceapi.ResourceSliceMaxCountersPerCounterSet)
			for name := range set.Counters {
				isLabel(t, name)
			}
		}
	}
	if len(sets) > 0 && !options.Counters {
		t.Error("there are counters on a cluster without")
	}
	for _, slice := range p.Slices {
		for _, d := range slice.Devices {
			if seen[d.Name] {
				t.Errorf("%s is there twice", d.Name)
			}
			seen[d.Name] = true
			if p.Devices[d.Name].Name != d.Name {
				t.Errorf("%s is published and not known", d.Name)
			}
			checkDevice(t, d, sets, options)
		}
	}
	if len(seen) != len(p.Devices) {
		t.Errorf("%d devices are published, %d are known", len(seen), len(p.Devices))
	}
}

func checkDevice(
	t testing.TB, d resourceapi.Device, sets map[string]resourceapi.CounterSet, options pool.Options,
) {
	t.Helper()
	isLabel(t, d.Name)
	most(t, "attributes of "+d.Name, len(d.Attributes)+len(d.Capacity),
		resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice)
	for name, attribute := range d.Attributes {
		checkAttribute(t, name, attribute)
	}
	for _, required := range []resourceapi.QualifiedName{
		pool.AttributeType, pool.AttributeMultusID, pool.AttributeMultusResource, "resource.kubernetes.io/pciBusID",
		"resource.kubernetes.io/pcieRoot",
	} {
		if attribute, ok := d.Attributes[required]; !ok || *attribute.StringValue == "" {
			t.Errorf("%s has no %s", d.Name, required)
		}
	}
	most(t, "counter sets that "+d.Name+" consumes", len(d.ConsumesCounters),
		resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice)
	for _, consumed := range d.ConsumesCounters {
		most(t, "counters that "+d.Name+" consumes", len(consumed.Counters),
			resourceapi.ResourceSliceMaxCountersPerDeviceCounterConsumption)
		for name, counter := range consumed.Counters {
			if has, ok := sets[consumed.CounterSet].Counters[name]; !ok || has.Value.Cmp(counter.Value) < 0 {
				t.Errorf("%s consumes %v of %s in %s, which has %v",
					d.Name, counter.Value, name, consumed.CounterSet, has.Value)
			}
		}
	}
	if len(d.Taints) > 0 && !options.Taints {
		t.Errorf("%s has taints on a cluster without", d.Name)
	}
	for _, taint := range d.Taints {
		problems := append(validation.IsQualifiedName(taint.Key), validation.IsValidLabelValue(taint.Value)...)
		if len(problems) > 0 || taint.Effect != resourceapi.DeviceTaintEffectNoSchedule {
			t.Errorf("%s has the taint %v: %v", d.Name, taint, problems)
		}
	}
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkAttribute(t testing.TB, name resourceapi.QualifiedName, a resourceapi.DeviceAttribute) {
	t.Helper()
	domain, id, qualified := strings.Cut(string(name), "/")
	if !qualified {
		domain, id = pool.Driver, string(name)
	}
	if len(validation.IsDNS1123Subdomain(domain)) > 0 || len(domain) > resourceapi.DeviceMaxDomainLength ||
		!identifier.MatchString(id) || len(id) > resourceapi.DeviceMaxIDLength {
		t.Errorf("%s is no name of an attribute", name)
	}
	if (a.StringValue == nil) == (a.IntValue == nil) {
		t.Errorf("%s is %v: want a string or a number", name, a)
	}
	if a.StringValue != nil {
		most(t, string(name), len(*a.StringValue), resourceapi.DeviceAttributeMaxValueLength)
	}
}

func isLabel(t testing.TB, name string) {
	t.Helper()
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		t.Errorf("%s is no DNS label: %v", name, problems)
	}
}

func most(t testing.TB, what string, n, limit int) {
	t.Helper()
	if n > limit {
		t.Errorf("%s: %d, the limit is %d", what, n, limit)
	}
}

// allocate takes devices one after the other as far as their counters allow, as the scheduler does, and
// returns those that it took.
func allocate(p pool.Pool, order []string) (taken []string) {
	left := map[string]resource.Quantity{}
	consumed := map[string][]resourceapi.DeviceCounterConsumption{}
	for _, slice := range p.Slices {
		for _, set := range slice.SharedCounters {
			for name, counter := range set.Counters {
				left[set.Name+"/"+name] = counter.Value.DeepCopy()
			}
		}
		for _, d := range slice.Devices {
			consumed[d.Name] = d.ConsumesCounters
		}
	}
	for _, name := range order {
		short := slices.ContainsFunc(consumed[name], func(c resourceapi.DeviceCounterConsumption) bool {
			for counter, wanted := range c.Counters {
				if has := left[c.CounterSet+"/"+counter]; has.Cmp(wanted.Value) < 0 {
					return true
				}
			}
			return false
		})
		if short {
			continue
		}
		taken = append(taken, name)
		for _, c := range consumed[name] {
			for counter, wanted := range c.Counters {
				has := left[c.CounterSet+"/"+counter]
				has.Sub(wanted.Value)
				left[c.CounterSet+"/"+counter] = has
			}
		}
	}
	return taken
}
