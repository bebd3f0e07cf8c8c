// Command server is a foreign CONNECT-IP proxy for `gramway connect --tun`: it judges the requests by the RFC, leases
// addresses, advertises routes, and carries packets between its clients and a TUN device until SIGTERM.
//
// The first line of output has the link, each request adds a line with its fields, the last line has the result.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	connectip "github.com/quic-go/connect-ip-go"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"

	"gramway.test/interop/internal/report"
	"gramway.test/interop/internal/tunnel"
)

func main() {
	listen := flag.String("listen", "", "ADDR:PORT of the proxy, as the link names it")
	own := flag.String("own", "", "address of the proxy in the tunnel, with the length of its network, e.g. 10.99.0.1/24")
	lease := flag.String("lease", "", "address for the first request, others get those that follow; IPv6 is refused")
	routes := flag.String("routes", "", "networks below the own one that are advertised too, separated by commas, in order")
	device := flag.String("device", "foreign0", "name of the TUN device")
	flag.Parse()
	result := report.New()
	if err := run(*listen, *own, *lease, *routes, *device, result); err != nil {
		result.Fail("%v", err)
	}
	result.End()
}

// proxy is what all its requests share.
type proxy struct {
	authority, token string
	routes           []connectip.IPRoute
	device           *tunnel.Device
	result           *report.Report

	mutex     sync.Mutex
	nextLease netip.Addr
	leases    map[netip.Addr]*connectip.Conn
}

func run(listen, own, lease, routes, deviceName string, result *report.Report) error {
	network, err := netip.ParsePrefix(own)
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(lease)
	if err != nil {
		return err
	}
	advertised := []connectip.IPRoute{}
	for _, text := range strings.FieldsFunc(routes, func(r rune) bool { return r == ',' }) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return err
		}
		advertised = append(advertised, rangeOf(prefix))
	}
	advertised = append(advertised, rangeOf(network.Masked()))
	device, err := tunnel.Open(deviceName)
	if err != nil {
		return err
	}
	if err := device.AddAddress(network); err != nil {
		return err
	}
	certificate, pin, err := identity()
	if err != nil {
		return err
	}
	var token [32]byte
	rand.Read(token[:])
	p := &proxy{
		authority: listen,
		token:     base64.RawURLEncoding.EncodeToString(token[:]),
		nextLease: address,
		leases:    map[netip.Addr]*connectip.Conn{},
		routes:    advertised,
		device:    device,
		result:    result,
	}
	server := &http3.Server{
		Handler:         p,
		EnableDatagrams: true,
		TLSConfig: http3.ConfigureTLSConfig(
			&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13},
		),
		QUICConfig: &quic.Config{EnableDatagrams: true, InitialPacketSize: 1350},
	}
	socket, err := net.ListenPacket("udp", listen)
	if err != nil {
		return err
	}
	go func() {
		if err := server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			result.Fail("the server ended: %v", err)
		}
	}()
	go device.FromDevice(p.owner, result)
	report.Print(map[string]string{"link": fmt.Sprintf("gramway://%s@%s?pin=sha256-%s#foreign", p.token, listen, pin)})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	for received := range signals {
		switch received {
		case syscall.SIGUSR1:
			p.assign(func(netip.Addr) []netip.Prefix { return nil })
		case syscall.SIGUSR2:
			p.assign(func(lease netip.Addr) []netip.Prefix { return []netip.Prefix{netip.PrefixFrom(lease, 32)} })
		default:
			return server.Close()
		}
	}
	return nil
}

// assign tells every request unasked which addresses it has: an assignment replaces the one before (RFC 9484 section
// 4.7.1).
func (p *proxy) assign(addresses func(lease netip.Addr) []netip.Prefix) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for lease, conn := range p.leases {
		if err := conn.AssignAddresses(addresses(lease)); err != nil {
			p.result.Fail("addresses cannot be assigned: %v", err)
		}
	}
}

// ServeHTTP answers one request; it returns when the request is over.
func (p *proxy) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	p.result.Count(request.Proto)
	if request.Proto != "connect-ip" {
		// The client's check of its token, too: any answer but 401 will do.
		writer.Header().Set("Proxy-Status", "foreign; error=destination_ip_prohibited")
		writer.WriteHeader(http.StatusBadGateway)
		return
	}
	p.check(request)
	template := uritemplate.MustNew("https://" + p.authority + "/.well-known/masque/ip/*/*/")
	parsed, err := connectip.ParseProxyRequest(request, template)
	if err != nil {
		p.result.Fail("connect-ip-go refuses the request: %v", err)
		writer.WriteHeader(http.StatusBadRequest)
		return
	}
	conn, err := new(connectip.Proxy).Proxy(writer, parsed)
	if err != nil {
		p.result.Fail("the request cannot be accepted: %v", err)
		return
	}
	if err := conn.AdvertiseRoute(p.routes); err != nil {
		p.result.Fail("routes cannot be advertised: %v", err)
	}
	go p.lendAddresses(conn, p.lend(conn))
	p.device.ToDevice(conn, p.result)
	p.result.Count("ended connect-ip")
}

// check holds the fields against RFC 9484 section 4.4, and tells what Gramway clients add to them.
func (p *proxy) check(request *http.Request) {
	p.result.Expect("the method", request.Method, http.MethodConnect)
	p.result.Expect("the path", request.RequestURI, "/.well-known/masque/ip/*/*/")
	p.result.Expect("the authority", request.Host, p.authority)
	own, rest := map[string][]string{}, http.Header{}
	for name, values := range request.Header {
		if strings.HasPrefix(name, "Gramway-") {
			own[name] = values
		} else {
			rest[name] = values
		}
	}
	wanted := http.Header{http3.CapsuleProtocolHeader: {"?1"}, "Authorization": {"Bearer " + p.token}}
	p.result.Expect("the fields", rest, wanted)
	report.Print(map[string]any{"extensions": own})
}

// lend finds an address for a request. Nothing tells this proxy that two requests come from one client.
func (p *proxy) lend(conn *connectip.Conn) netip.Addr {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	lease := p.nextLease
	p.nextLease = lease.Next()
	p.leases[lease] = conn
	return lease
}

// owner is the request that an IPv4 packet goes to, by its destination.
func (p *proxy) owner(packet []byte) *connectip.Conn {
	if packet[0]>>4 != 4 {
		return nil
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.leases[netip.AddrFrom4([4]byte(packet[16:20]))]
}

// lendAddresses answers ADDRESS_REQUEST: the lease for IPv4, a refusal for IPv6.
func (p *proxy) lendAddresses(conn *connectip.Conn, lease netip.Addr) {
	for {
		asked, err := conn.ReceiveAddressRequest(context.Background())
		if err != nil {
			return
		}
		p.result.Count("address requests")
		answers := make([]netip.Prefix, len(asked.Prefixes))
		for index, prefix := range asked.Prefixes {
			if prefix.Addr().Is4() {
				answers[index] = netip.PrefixFrom(lease, 32)
			}
		}
		if err := asked.Respond(answers, nil); err != nil {
			p.result.Fail("an address request cannot be answered: %v", err)
		}
	}
}

func rangeOf(prefix netip.Prefix) connectip.IPRoute {
	last := prefix.Addr().As4()
	for bit := prefix.Bits(); bit < 32; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	return connectip.IPRoute{StartIP: prefix.Addr(), EndIP: netip.AddrFrom4(last)}
}

// identity is a self-signed certificate, and the pin of its public key: clients look at nothing else.
func identity() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"foreign"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	chain, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	digest := sha256.Sum256(public)
	pin := base64.RawURLEncoding.EncodeToString(digest[:])
	return tls.Certificate{Certificate: [][]byte{chain}, PrivateKey: key}, pin, nil
}
