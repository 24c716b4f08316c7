package main

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"tailscale.com/tailcfg"
	"tailscale.com/tstest/integration/testcontrol"
	"tailscale.com/types/dnstype"
	"tailscale.com/types/key"
)

// keepAlive is how often an idle map stream says that it is alive; clients give up after two minutes of silence.
const keepAlive = 50 * time.Second

// tailnet adds to the test control plane what it lacks: who is connected, and settings of single nodes.
type tailnet struct {
	control *testcontrol.Server

	mu       sync.Mutex
	streams  map[key.NodePublic]int       // open map streams; a node is online while it has one
	lastSeen map[key.NodePublic]time.Time // when the last stream of a node ended
	forgot   map[key.NodePublic]bool      // nodes that no longer belong to the tailnet
	actions  map[key.NodePublic]string    // what the node's SSH policy says, "accept" where absent
	changed  chan struct{}                // closed and replaced at every change
}

func newTailnet(control *testcontrol.Server, domain string) *tailnet {
	t := &tailnet{
		control:  control,
		streams:  map[key.NodePublic]int{},
		lastSeen: map[key.NodePublic]time.Time{},
		forgot:   map[key.NodePublic]bool{},
		actions:  map[key.NodePublic]string{},
		changed:  make(chan struct{}),
	}
	control.SSHPolicy = policy("accept")
	control.DNSConfig = &tailcfg.DNSConfig{
		Proxied: true,
		Domains: []string{domain},
		Routes:  map[string][]*dnstype.Resolver{},
	}
	control.AltMapStream = t.serveMap
	return t
}

// announce wakes every map stream. t.mu must be held.
func (t *tailnet) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// serveMap answers one map request: a node reporting its endpoints, or the long poll by which it hears of changes.
func (t *tailnet) serveMap(ctx context.Context, w testcontrol.MapStreamWriter, req *tailcfg.MapRequest) {
	if !req.Stream {
		if !req.ReadOnly {
			t.report(req)
		}
		if res := t.response(req); res != nil {
			_ = w.SendMapMessage(res) // a node that hung up asks again
		}
		return
	}
	t.connected(req.NodeKey, +1)
	defer t.connected(req.NodeKey, -1)
	for {
		t.mu.Lock()
		changed := t.changed
		t.mu.Unlock()
		res := t.response(req)
		if res == nil || w.SendMapMessage(res) != nil {
			return
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				waiting = false
			case <-time.After(keepAlive):
				if w.SendMapMessage(&tailcfg.MapResponse{KeepAlive: true}) != nil {
					return
				}
			}
		}
	}
}

// connected counts a node's map streams and tells the others when it comes or goes.
func (t *tailnet) connected(node key.NodePublic, delta int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.streams[node]
	t.streams[node] += delta
	if before == 0 || t.streams[node] == 0 {
		t.lastSeen[node] = time.Now()
		t.announce()
	}
}

// report stores what a node says about itself.
func (t *tailnet) report(req *tailcfg.MapRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := t.control.Node(req.NodeKey)
	if node == nil {
		return
	}
	node.Endpoints = req.Endpoints
	node.DiscoKey = req.DiscoKey
	node.Cap = req.Version
	if req.Hostinfo != nil {
		node.Hostinfo = req.Hostinfo.View()
		if info := req.Hostinfo.NetInfo; info != nil && info.PreferredDERP != 0 {
			node.HomeDERP = info.PreferredDERP
		}
	}
	t.control.UpdateNode(node)
	t.announce()
}

// response is the whole network map as one node may see it, nil when the node is not known (any more).
func (t *tailnet) response(req *tailcfg.MapRequest) *tailcfg.MapResponse {
	res, err := t.control.MapResponse(req)
	if err != nil || res == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	res.ControlTime = &now
	peers := res.Peers[:0]
	for _, peer := range res.Peers {
		if t.forgot[peer.Key] || peer.ID == res.Node.ID {
			continue
		}
		online := t.streams[peer.Key] > 0
		peer.Online = &online
		if seen := t.lastSeen[peer.Key]; !online && !seen.IsZero() {
			peer.LastSeen = &seen
		}
		peers = append(peers, peer)
	}
	res.Peers = peers
	res.SSHPolicy = policy(t.actions[req.NodeKey])
	return res
}

// named gives the nodes with this host name that still belong to the tailnet. t.mu must be held.
func (t *tailnet) named(name string) (nodes []*tailcfg.Node) {
	for _, node := range t.control.AllNodes() {
		if short, _, _ := strings.Cut(node.Name, "."); short == name && !t.forgot[node.Key] {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// address is a node's IPv4 address in the tailnet.
func address(node *tailcfg.Node) (none netip.Addr) {
	for _, prefix := range node.Addresses {
		if prefix.Addr().Is4() {
			return prefix.Addr()
		}
	}
	return none
}

// policy is an SSH policy with one rule for all: accept, deny or check.
func policy(action string) *tailcfg.SSHPolicy {
	rule := &tailcfg.SSHRule{
		Principals: []*tailcfg.SSHPrincipal{{Any: true}},
		SSHUsers:   map[string]string{"root": "root", "*": "="},
	}
	switch action {
	case "deny":
		// As the real service does it: a policy that knows of SSH, but has no rule for this login.
		return &tailcfg.SSHPolicy{}
	case "check":
		rule.Action = &tailcfg.SSHAction{
			Message: "# Tailscale SSH requires an additional check.\r\n" +
				"# To authenticate, visit: https://login.tailscale.com/a/lab0123456789\r\n",
			// The test control plane never answers here, so the node waits, as for a person who does not log in.
			HoldAndDelegate: "https://unused/machine/ssh/action/from/$SRC_NODE_ID/to/$DST_NODE_ID",
		}
	default:
		rule.Action = &tailcfg.SSHAction{
			Accept:                    true,
			AllowAgentForwarding:      true,
			AllowLocalPortForwarding:  true,
			AllowRemotePortForwarding: true,
		}
	}
	return &tailcfg.SSHPolicy{Rules: []*tailcfg.SSHRule{rule}}
}
