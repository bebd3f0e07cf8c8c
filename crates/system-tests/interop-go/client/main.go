// Command client is a foreign CONNECT-IP client of `gramway up --tun`: it checks how requests are answered, asks for
// addresses, sets up a TUN device by what it is told, and carries packets until SIGTERM.
//
// The first line of output tells addresses and routes, the last one the result.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	connectip "github.com/quic-go/connect-ip-go"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/yosida95/uritemplate/v3"

	"gramway.test/interop/internal/report"
	"gramway.test/interop/internal/tunnel"
)

// For all that happens before packets flow.
const setUpLimit = 20 * time.Second

func main() {
	masque := flag.String("masque", "", "file with what `gramway link --masque` prints")
	tokenFile := flag.String("token-file", "", "bearer token; without it the credential is the path of the template")
	device := flag.String("device", "foreign0", "name of the TUN device")
	flag.Parse()
	result := report.New()
	if err := run(*masque, *tokenFile, *device, result); err != nil {
		result.Fail("%v", err)
	}
	result.End()
}

func run(masque, tokenFile, deviceName string, result *report.Report) error {
	ctx, cancel := context.WithTimeout(context.Background(), setUpLimit)
	defer cancel()
	proxy, err := readProxy(masque, tokenFile)
	if err != nil {
		return err
	}
	conn, err := quic.DialAddr(ctx, proxy.authority, proxy.tls, &quic.Config{
		EnableDatagrams:   true,
		InitialPacketSize: 1350,
		KeepAlivePeriod:   5 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("QUIC: %w", err)
	}
	defer conn.CloseWithError(0, "")
	client, err := new(connectip.Transport).NewClientConn(conn)
	if err != nil {
		return err
	}
	proxy.checkRefusals(ctx, client, result)
	session, response, err := proxy.dial(ctx, client, proxy.url("*/*"), proxy.bearer)
	if err != nil {
		return err
	}
	result.Expect("the fields of the response", response.Header, http.Header{http3.CapsuleProtocolHeader: {"?1"}})

	device, err := tunnel.Open(deviceName)
	if err != nil {
		return err
	}
	if err := setUp(ctx, session, device, result); err != nil {
		return err
	}
	go device.FromDevice(func([]byte) *connectip.Conn { return session }, result)
	ended := make(chan struct{})
	go func() {
		device.ToDevice(session, result)
		close(ended)
	}()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	select {
	case <-stop:
		return session.Close()
	case <-ended:
		return errors.New("the proxy ended the request")
	}
}

// setUp asks for an address of each version and configures the device by the answers.
func setUp(ctx context.Context, session *connectip.Conn, device *tunnel.Device, result *report.Report) error {
	asked := []netip.Prefix{
		netip.PrefixFrom(netip.IPv4Unspecified(), 32),
		netip.PrefixFrom(netip.IPv6Unspecified(), 128),
	}
	ids, err := session.RequestAddresses(asked)
	if err != nil {
		return err
	}
	// An assignment that came unasked may precede the answer.
	var assigned []connectip.AssignedAddress
	for answered := 0; answered < len(ids); {
		if assigned, err = session.ReceiveAddressAssignment(ctx); err != nil {
			return fmt.Errorf("no answer to ADDRESS_REQUEST: %w", err)
		}
		answered = 0
		for index, id := range ids {
			for _, address := range assigned {
				if address.RequestID == id {
					answered++
					result.Expect("the version of an answer", address.IPPrefix.Addr().Is4(), asked[index].Addr().Is4())
				}
			}
		}
	}
	addresses, refused := []string{}, []string{}
	for _, address := range assigned {
		if address.Rejected() {
			refused = append(refused, address.IPPrefix.String())
			continue
		}
		addresses = append(addresses, address.IPPrefix.String())
		if err := device.AddAddress(address.IPPrefix); err != nil {
			return err
		}
	}
	ranges, err := session.Routes(ctx)
	if err != nil {
		return fmt.Errorf("no ROUTE_ADVERTISEMENT: %w", err)
	}
	routes := []string{}
	for _, r := range ranges {
		routes = append(routes, fmt.Sprintf("%s-%s protocol %d", r.StartIP, r.EndIP, r.IPProtocol))
		for _, prefix := range r.Prefixes() {
			if err := device.AddRoute(prefix); err != nil {
				return err
			}
		}
	}
	report.Print(map[string]any{"addresses": addresses, "refused": refused, "routes": routes})
	return nil
}

// proxy is what the client knows of the server.
type proxy struct {
	authority, segment, bearer string
	tls                        *tls.Config
}

// readProxy reads one URI template per line, then the certificate.
func readProxy(masque, tokenFile string) (*proxy, error) {
	text, err := os.ReadFile(masque)
	if err != nil {
		return nil, err
	}
	template, rest, _ := strings.Cut(string(text), "\n")
	parts := strings.Split(strings.TrimPrefix(template, "https://"), "/")
	if len(parts) < 2 {
		return nil, fmt.Errorf("%q is no URI template", template)
	}
	block, _ := pem.Decode([]byte(rest[strings.Index(rest, "-----BEGIN"):]))
	if block == nil {
		return nil, errors.New("there is no certificate below the template")
	}
	result := &proxy{authority: parts[0], segment: parts[1]}
	result.tls = &tls.Config{
		NextProtos: []string{http3.NextProtoH3},
		// The one certificate that is named, whatever names it has.
		InsecureSkipVerify: true,
		VerifyPeerCertificate: func(chain [][]byte, _ [][]*x509.Certificate) error {
			if len(chain) == 0 || !bytes.Equal(chain[0], block.Bytes) {
				return errors.New("another certificate than the one printed")
			}
			return nil
		},
	}
	if tokenFile != "" {
		token, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, err
		}
		result.bearer = strings.TrimSpace(string(token))
	}
	return result, nil
}

// url is the template with these variables expanded.
func (p *proxy) url(variables string) string {
	prefix := ".well-known/masque/ip"
	if p.bearer == "" {
		prefix = p.segment
	}
	return fmt.Sprintf("https://%s/%s/%s/", p.authority, prefix, variables)
}

func (p *proxy) dial(
	ctx context.Context, client *connectip.ClientConn, url, bearer string,
) (*connectip.Conn, *http.Response, error) {
	// connect-ip-go expands no variables: they are part of the text.
	template, err := uritemplate.New(url)
	if err != nil {
		return nil, nil, err
	}
	request, err := connectip.NewRequest(ctx, template)
	if err != nil {
		return nil, nil, err
	}
	if bearer != "" {
		request.Header().Set("Authorization", "Bearer "+bearer)
	}
	return client.Dial(request)
}

// checkRefusals asks for what must be refused, on the connection that is then used.
func (p *proxy) checkRefusals(ctx context.Context, client *connectip.ClientConn, result *report.Report) {
	check := func(what, url, bearer string, status int, fields http.Header) {
		session, response, err := p.dial(ctx, client, url, bearer)
		if session != nil {
			session.Close()
		}
		if response == nil {
			log.Printf("%s: %v", what, err)
			result.Fail("%s got no response: %v", what, err)
			return
		}
		result.Expect("the status for "+what, response.StatusCode, status)
		result.Expect("the fields for "+what, response.Header, fields)
	}
	wellKnown := fmt.Sprintf("https://%s/.well-known/masque/ip/", p.authority)
	challenge := http.Header{"Www-Authenticate": {"Bearer"}}
	check("a request without a token", wellKnown+"*/*/", "", http.StatusUnauthorized, challenge)
	check("a wrong path", fmt.Sprintf("https://%s/wrong/*/*/", p.authority), "", http.StatusNotFound, http.Header{})
	// RFC 9484 section 4.6: bits beyond the prefix length, and a protocol that does not exist.
	check("a broken target", p.url("192.0.2.1%2F24/*"), p.bearer, http.StatusBadRequest, http.Header{})
	check("a broken protocol", p.url("*/256"), p.bearer, http.StatusBadRequest, http.Header{})
}
