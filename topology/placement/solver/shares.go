// SPDX-License-Identifier: Apache-2.0

package solver

// Shares is the number of partners of each device. The number of pairs is the size of the larger half. Each
// device of the larger half is in one pair; each device of the smaller half is in an equal number of pairs,
// and some of them, the extras, are in one more.
type Shares struct {
	GPUs, VFs         int // wanted
	Pairs             int // 0 if a half is empty
	PerGPU, PerVF     int // partners of each device, without its extra
	GPUExtra, VFExtra int // number of extras of the smaller half; 0 for the other half
	extras            int // the nonzero one of GPUExtra and VFExtra, if any
}

// NewShares returns the shares of the given numbers of GPUs and VFs.
func NewShares(gpus, vfs int) Shares {
	s := Shares{GPUs: gpus, VFs: vfs}
	if gpus == 0 || vfs == 0 {
		return s
	}
	s.Pairs = max(gpus, vfs)
	if vfs >= gpus {
		s.PerGPU, s.PerVF, s.extras = vfs/gpus, 1, vfs%gpus
		s.GPUExtra = s.extras
	} else {
		s.PerGPU, s.PerVF, s.extras = 1, gpus/vfs, gpus%vfs
		s.VFExtra = s.extras
	}
	return s
}

// units returns the number of pairs of g GPUs and v VFs if e of the devices that can be extras are extras.
func (s *Shares) units(g, v, e int) (ofGPUs, ofVFs int) {
	ofGPUs, ofVFs = s.PerGPU*g, s.PerVF*v
	if s.GPUExtra > 0 {
		ofGPUs += e
	} else if s.VFExtra > 0 {
		ofVFs += e
	}
	return ofGPUs, ofVFs
}

// mostExtras returns the maximum number of extras among g GPUs and v VFs.
func (s *Shares) mostExtras(g, v int) int {
	if s.GPUExtra > 0 {
		return min(g, s.extras)
	}
	return min(v, s.extras) // s.extras is 0 if neither half has extras
}
