// Command coordination is the lab's coordination server: the part that Tailscale's own servers play for a real
// tailnet. It runs Tailscale's in-memory test control plane and a relay of its own, follows which nodes are
// connected, and lets tests change a node's SSH policy or key expiry through an admin socket.
package main

import (
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"testing"

	"tailscale.com/tstest/integration"
	"tailscale.com/tstest/integration/testcontrol"
	"tailscale.com/types/logger"
)

// relayHost satisfies what integration.RunDERPAndSTUN asks of a test: its failures end the program.
type relayHost struct{ *testing.T }

func (relayHost) Cleanup(func())                  {}
func (relayHost) Helper()                         {}
func (relayHost) Fatal(args ...any)               { log.Fatal(args...) }
func (relayHost) Fatalf(f string, args ...any)    { log.Fatalf(f, args...) }
func (relayHost) Errorf(f string, args ...any)    { log.Fatalf(f, args...) }
func (relayHost) Logf(format string, args ...any) { log.Printf(format, args...) }
func (relayHost) Name() string                    { return "coordination" }

func main() {
	address := flag.String("address", "", "IP address to listen on, for nodes and relay")
	port := flag.String("port", "9911", "TCP port for nodes")
	admin := flag.String("admin", "", "path of the admin socket")
	domain := flag.String("domain", "lab.ts.net", "DNS domain of the tailnet")
	flag.Parse()
	if *address == "" || *admin == "" {
		log.Fatal("both -address and -admin are needed")
	}

	tailnet := newTailnet(&testcontrol.Server{
		DERPMap:          integration.RunDERPAndSTUN(relayHost{}, logger.Discard, *address),
		ExplicitBaseURL:  "http://" + net.JoinHostPort(*address, *port),
		MagicDNSDomain:   *domain,
		AllNodesSameUser: true,
		Logf:             logger.Discard,
	}, *domain)

	_ = os.Remove(*admin) // left by a server that was killed
	socket, err := net.Listen("unix", *admin)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(http.Serve(socket, tailnet.admin())) }()
	log.Fatal(http.ListenAndServe(net.JoinHostPort(*address, *port), tailnet.control))
}
