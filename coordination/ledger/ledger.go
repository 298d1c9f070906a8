// Package ledger is the one record of which device of a node is whose.
//
// It holds what the plugins have announced (resource.go), what each container has (allocation.go), and what
// the kubelet shows of that (confirm.go). It decides nothing, and knows neither questions nor plans.
//
// A ledger has no lock: whoever decides works on a copy ([Ledger.Clone]), which others see once it no longer
// changes. Every device has one holder at the most, which [Ledger.Check] proves.
package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// How much a ledger holds. The largest nodes known have 63 GPU partitions and some hundred VFs, but eight
// GPUs that 2,000 containers share each are 16,000 devices. So many fit, all held, into a checkpoint.
const (
	MaxDevices   = 1 << 14 // of one resource
	MaxResources = 64
)

// Ledger is which container has which device.
type Ledger struct {
	resources map[string]*Resource
	holders   map[string]map[string]*Allocation // resource → device ID → who has it; absent is free
	ids       int                               // of allocations, the highest
	sequence  int                               // of the newest Allocate
}

// New makes an empty ledger.
func New() *Ledger {
	return &Ledger{resources: map[string]*Resource{}, holders: map[string]map[string]*Allocation{}}
}

// Clone copies a ledger. Copied is the copy of an allocation: the same one whenever it is asked for.
func (l *Ledger) Clone(copied func(*Allocation) *Allocation) *Ledger {
	next := *l
	next.resources = maps.Clone(l.resources)
	next.holders = make(map[string]map[string]*Allocation, len(l.holders))
	for name, holders := range l.holders {
		next.holders[name] = make(map[string]*Allocation, len(holders))
		for id, a := range holders {
			next.holders[name][id] = copied(a)
		}
	}
	return &next
}

// Room says why a ledger does not take so many more devices of a resource; nil where it does.
func (l *Ledger) Room(name string, more int) error {
	known := max(len(l.holders), len(l.resources))
	if l.resources[name] == nil && l.holders[name] == nil && known >= MaxResources {
		return fmt.Errorf("there are %d resources already", known)
	}
	if len(l.holders[name])+more > MaxDevices {
		return fmt.Errorf("%d devices of %s are held already", len(l.holders[name]), name)
	}
	return nil
}

// Allocate records that the kubelet gave an allocation's container devices.
func (l *Ledger) Allocate(a *Allocation, name string, ids []string, to *Recipient) {
	a.Container = "" // that of an init container, if another one takes over; the pod is the same
	l.sequence++
	if to != nil {
		if a.Recipient != nil && !a.Recipient.Is(to) {
			a.Since = l.sequence
		}
		a.Recipient = to
	}
	for _, id := range ids {
		l.Give(a, name, id, l.sequence)
	}
}

// Give makes an allocation the holder of a device, whoever had it before.
func (l *Ledger) Give(a *Allocation, name, id string, sequence int) {
	l.Release(name, id)
	if l.holders[name] == nil {
		l.holders[name] = map[string]*Allocation{}
	}
	if a.Devices == nil {
		a.Devices = map[string]map[string]int{}
	}
	if a.ID == 0 {
		l.ids++
		a.ID = l.ids
	}
	if a.Devices[name] == nil {
		a.Devices[name] = map[string]int{}
	}
	l.holders[name][id] = a
	a.Devices[name][id] = sequence
}

// Release makes a device free. Releasing a free device is no error.
func (l *Ledger) Release(name, id string) {
	a := l.holders[name][id]
	if a == nil {
		return
	}
	delete(l.holders[name], id)
	delete(a.Devices[name], id)
	if len(a.Devices[name]) == 0 {
		delete(a.Devices, name)
	}
}

// Drop releases all that an allocation has.
func (l *Ledger) Drop(a *Allocation) {
	for name, ids := range a.Devices {
		for id := range maps.Clone(ids) {
			l.Release(name, id)
		}
	}
}

// Holder is who has a device, nil for nobody.
func (l *Ledger) Holder(name, id string) *Allocation { return l.holders[name][id] }

// Allocations lists all that hold a device, in the order in which they came.
func (l *Ledger) Allocations() []*Allocation {
	var all []*Allocation
	for _, holders := range l.holders {
		for _, a := range holders {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *Allocation) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Compact(all)
}

// Sequence is that of the newest Allocate, 0 before the first.
func (l *Ledger) Sequence() int { return l.sequence }

// Newest is the allocation that got the newest Allocate, nil where none was seen, or it is known to be gone.
func (l *Ledger) Newest() *Allocation {
	for name, holders := range l.holders {
		for id, a := range holders {
			if l.sequence > 0 && a.Devices[name][id] == l.sequence && !a.Doubtful {
				return a
			}
		}
	}
	return nil
}

// IsFree reports whether nobody holds a device, or nobody any more as far as the kubelet's offers tell.
func (l *Ledger) IsFree(name, id string) bool {
	a := l.holders[name][id]
	return a == nil || a.Doubtful
}

// Check says what is wrong with a ledger, nil where nothing is: every device has one holder, which holds it.
func (l *Ledger) Check() error {
	for name, holders := range l.holders {
		for id, a := range holders {
			if _, ok := a.Devices[name][id]; !ok {
				return fmt.Errorf("device %s of %s has a holder that does not hold it", id, name)
			}
		}
	}
	for _, a := range l.Allocations() {
		for name, ids := range a.Devices {
			if len(ids) == 0 {
				return fmt.Errorf("the allocation of %s keeps an empty list of %s", a.OwnerName(), name)
			}
			for id := range ids {
				if l.holders[name][id] != a {
					return fmt.Errorf("device %s of %s is held by an allocation that is not its holder", id, name)
				}
			}
		}
	}
	return nil
}
