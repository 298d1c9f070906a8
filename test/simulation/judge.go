// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/hardware"
	"github.com/tandem-k8s/tandem/topology"
)

// Promises.
const (
	twoOwners      = "a device has two owners"
	brokenContract = "an answer breaks the kubelet's contract"
	tooLate        = "an answer takes too long"
	vanished       = "a device of a container leaves the plugin's list"
	environment    = "the environment names other devices"
	noNode         = "a container lacks a device node"
	alone          = "a plugin answers without the coordinator in a calm"
	notBest        = "the pairs are not the best of the free devices"
	notEnforced    = "required alignment is not enforced"
	refused        = "a pod is refused without a reason"
	another        = "the coordinator names another container"
	wrongFile      = "the pairs file names other devices"
	otherVerdict   = "the scheduler's verdict is not the kubelet's"
	wrongStatus    = "the coordinator's holders are not the kubelet's"
)

// checkOwners: in every weather a device has one owner.
func (s *Simulation) checkOwners() {
	owners := map[string]string{}
	for _, p := range s.kubelet.Pods() {
		for _, c := range p.Containers {
			for _, ids := range s.kubelet.Held(p, c) {
				for _, id := range ids {
					if owner := owners[id]; owner != "" && owner != p.UID {
						s.wrong(twoOwners, "%s is held by %s and %s", id, owner, p.UID)
					}
					owners[id] = p.UID
				}
			}
		}
	}
}

// checkLists: in every weather a plugin lists all devices of containers, healthy or not. From 1.34 on the
// kubelet crashes otherwise.
func (s *Simulation) checkLists() {
	for _, resource := range []string{model.GPUs, model.VFs} {
		listed := s.endpoints.listed(resource)
		for id := range s.kubelet.Booked(resource) {
			if len(listed) > 0 && !listed[id] {
				s.wrong(vanished, "%s of %s", id, resource)
			}
		}
	}
}

// checkAnswer judges an answer by the contract of GetPreferredAllocation.
func (s *Simulation) checkAnswer(q model.Question, ids []string) {
	distinct := slices.Compact(slices.Sorted(slices.Values(ids)))
	offered := slices.Concat(q.Available, q.MustInclude)
	missing := func(id string) bool { return !slices.Contains(ids, id) }
	foreign := func(id string) bool { return !slices.Contains(offered, id) }
	if len(distinct) != q.Size || len(ids) != q.Size || slices.ContainsFunc(q.MustInclude, missing) ||
		slices.ContainsFunc(ids, foreign) {
		s.wrong(brokenContract, "%+v: %v", q, ids)
	}
}

// checkRecipient: in a calm the coordinator gives devices to the container that the kubelet gives them to.
// Without a source of requests nothing tells the containers of a pod apart. A recipient of nil is not known,
// or was not told over the socket.
func (s *Simulation) checkRecipient(
	p *model.Pod, c *model.Container, ids []string, recipient *kubelet.Container,
) {
	if !s.judging || recipient == nil {
		return
	}
	s.happened[told]++
	if recipient.Pod != p.Pod || s.options.Source != "" && recipient.Name != c.Name {
		s.wrong(another, "%v of %s/%s are %s/%s's", ids, p.Name, c.Name, recipient.Pod.Name, recipient.Name)
	}
}

// checkEnvironment: in every weather the environment of a container names its devices.
func (s *Simulation) checkEnvironment(
	p *model.Pod, c *model.Container, resource string, ids []string, answer *v1beta1.ContainerAllocateResponse,
) {
	variable := hardware.GPUVariable
	if resource == model.VFs {
		variable = "PCIDEVICE_NVIDIA_COM_VF"
	}
	if named := strings.Split(answer.GetEnvs()[variable], ","); !device.SameSet(named, ids) {
		s.wrong(environment, "%s/%s has %v, and %s=%v", p.Name, c.Name, ids, variable, named)
	}
}

// checkNodes: in a calm a container with VFs has their device nodes of RDMA, and the common one.
func (s *Simulation) checkNodes(
	p *model.Pod, c *model.Container, resource string, ids []string, answer *v1beta1.ContainerAllocateResponse,
) {
	if !s.judging || resource != model.VFs {
		return
	}
	nodes := []string{commonNode}
	for _, id := range ids {
		for _, name := range topology.Names(s.hardware, path.Join(topology.PCIDevices, id, hardware.Verbs)) {
			nodes = append(nodes, path.Join(path.Dir(commonNode), name))
		}
	}
	for _, node := range nodes {
		is := func(d *v1beta1.DeviceSpec) bool { return d.GetContainerPath() == "/dev/"+node }
		if !slices.ContainsFunc(answer.GetDevices(), is) {
			s.wrong(noNode, "%s/%s has %v, without %s", p.Name, c.Name, answer.GetDevices(), node)
		}
	}
}

// checkAlone: in a calm the coordinator answers every call.
func (s *Simulation) checkAlone() {
	if n := s.alone.Swap(0); n > 0 && s.judging {
		s.wrong(alone, "%d calls", n)
	}
}

// checkRefusal: in a calm a plugin refuses only what required alignment forbids, and devices that are gone.
func (s *Simulation) checkRefusal(
	p *model.Pod, c *model.Container, resource string, ids []string, err error,
) {
	gone := s.hardware.Lacks(s.addresses(resource, ids))
	if s.judging && !gone && (!s.options.requires(p) || !s.isApart(p, c, resource, ids)) {
		s.wrong(refused, "%s/%s %s %v: %v", p.Name, c.Name, resource, ids, err)
	}
}

// checkAdmission judges an admission in a calm.
func (s *Simulation) checkAdmission(p *model.Pod, admitted error) {
	if admitted != nil {
		return
	}
	for _, c := range p.Containers {
		if c.Requests[model.GPUs] > 0 && c.Requests[model.VFs] > 0 && c.Role != model.Init {
			s.checkPairs(p, c)
			s.checkFile(p, c)
		}
	}
}

// checkFile: the pairs file of a container names its devices. Without a source of requests, GPUs of a pod
// that was rejected can be an init container's, and the file names these alone.
func (s *Simulation) checkFile(p *model.Pod, c *model.Container) {
	var answer v1beta1.ContainerAllocateResponse
	mounts := 1
	if s.options.NoPairsFiles {
		mounts = 0
	}
	if err := proto.Unmarshal(c.Responses[model.VFs], &answer); err != nil || len(answer.GetMounts()) != mounts {
		s.wrong(wrongFile, "%s/%s has %d mounts, %v", p.Name, c.Name, len(answer.GetMounts()), err)
		return
	}
	if s.options.NoPairsFiles {
		return
	}
	file, err := pairs.Read(answer.GetMounts()[0].GetHostPath())
	if err != nil {
		s.wrong(wrongFile, "%s/%s: %v", p.Name, c.Name, err)
		return
	}
	named := kubelet.Devices{}
	for _, pair := range file.Pairs {
		if pair.GPU != nil {
			named[model.GPUs] = append(named[model.GPUs], pair.GPU.ID)
		}
		named[model.VFs] = append(named[model.VFs], pair.VF.ID)
	}
	for resource, ids := range named {
		distinct := slices.Compact(slices.Sorted(slices.Values(ids)))
		isPart := !slices.ContainsFunc(distinct, func(id string) bool {
			return !slices.Contains(c.Devices[resource], id)
		})
		if !device.SameSet(distinct, c.Devices[resource]) && !(s.options.Source == "" && isPart) {
			s.wrong(wrongFile, "%s/%s has %v, and a file with %v", p.Name, c.Name, c.Devices, named)
		}
	}
}
