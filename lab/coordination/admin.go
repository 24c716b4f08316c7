package main

import (
	"encoding/json"
	"net/http"
	"time"

	"tailscale.com/tailcfg"
)

// nodeStatus is what the admin socket tells about a node.
type nodeStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Online  bool   `json:"online"`
	Expired bool   `json:"expired"`
	SSH     string `json:"ssh"`
}

// admin serves:
//
//	GET  /nodes                                   all nodes of the tailnet
//	POST /ssh?node=NAME&action=accept|deny|check  the SSH policy that NAME is given
//	POST /expire?node=NAME&expired=true|false     the expiry of NAME's key
//	POST /forget?node=NAME                        NAME leaves the tailnet
func (t *tailnet) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /nodes", func(w http.ResponseWriter, _ *http.Request) {
		t.mu.Lock()
		defer t.mu.Unlock()
		statuses := []nodeStatus{}
		for _, node := range t.control.AllNodes() {
			if t.forgot[node.Key] {
				continue
			}
			action := t.actions[node.Key]
			if action == "" {
				action = "accept"
			}
			statuses = append(statuses, nodeStatus{
				Name:    node.Hostinfo.Hostname(),
				Address: address(node).String(),
				Online:  t.streams[node.Key] > 0,
				Expired: !node.KeyExpiry.IsZero() && node.KeyExpiry.Before(time.Now()),
				SSH:     action,
			})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(statuses) // the client hung up: nobody to tell
	})
	mux.HandleFunc("POST /ssh", t.change(func(node *tailcfg.Node, r *http.Request) string {
		action := r.FormValue("action")
		if action != "accept" && action != "deny" && action != "check" {
			return "action must be accept, deny or check"
		}
		t.actions[node.Key] = action
		return ""
	}))
	mux.HandleFunc("POST /expire", t.change(func(node *tailcfg.Node, r *http.Request) string {
		switch r.FormValue("expired") {
		case "true":
			node.KeyExpiry = time.Now().Add(-time.Minute)
		case "false":
			node.KeyExpiry = time.Time{}
		default:
			return "expired must be true or false"
		}
		t.control.UpdateNode(node)
		return ""
	}))
	mux.HandleFunc("POST /forget", t.change(func(node *tailcfg.Node, _ *http.Request) string {
		t.forgot[node.Key] = true
		return ""
	}))
	return mux
}

// change applies a change to every node of the name in the query and announces it; apply returns what is wrong.
func (t *tailnet) change(apply func(*tailcfg.Node, *http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t.mu.Lock()
		defer t.mu.Unlock()
		nodes := t.named(r.FormValue("node"))
		if len(nodes) == 0 {
			http.Error(w, "no such node", http.StatusNotFound)
			return
		}
		for _, node := range nodes {
			if problem := apply(node, r); problem != "" {
				http.Error(w, problem, http.StatusBadRequest)
				return
			}
		}
		t.announce()
		w.WriteHeader(http.StatusNoContent)
	}
}
