// Package tunnel joins a TUN device with a CONNECT-IP connection, packet by packet.
package tunnel

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	connectip "github.com/quic-go/connect-ip-go"
	"golang.org/x/sys/unix"

	"gramway.test/interop/internal/report"
)

// MTU of every device in bytes: what IPv6 needs, and what fits a DATAGRAM frame before the path is measured.
const MTU = 1280

const packetBytesMax = 65535

// Device is a TUN device without offloads.
type Device struct {
	name string
	file *os.File
}

// Open makes the device and sets it up.
func Open(name string) (*Device, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("TUNSETIFF: %w", err)
	}
	device := &Device{name: name, file: os.NewFile(uintptr(fd), name)}
	return device, device.ip("link", "set", "dev", name, "mtu", fmt.Sprint(MTU), "up")
}

// AddAddress gives it an address.
func (d *Device) AddAddress(prefix netip.Prefix) error {
	arguments := []string{"address", "add", prefix.String(), "dev", d.name}
	if prefix.Addr().Is6() {
		arguments = append(arguments, "nodad")
	}
	return d.ip(arguments...)
}

// AddRoute sends a network through it.
func (d *Device) AddRoute(prefix netip.Prefix) error {
	return d.ip("route", "add", prefix.String(), "dev", d.name)
}

func (d *Device) ip(arguments ...string) error {
	output, err := exec.Command("ip", arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, output)
	}
	return nil
}

// ToDevice carries packets from the peer until the connection ends.
func (d *Device) ToDevice(conn *connectip.Conn, report *report.Report) {
	buffer := make([]byte, packetBytesMax)
	for {
		length, err := conn.ReadPacket(buffer)
		if err != nil {
			return
		}
		report.Count("packets from the peer")
		if _, err := d.file.Write(buffer[:length]); err != nil {
			report.Fail("the device refuses a packet of %d bytes: %v", length, err)
		}
	}
}

// FromDevice carries packets to the connection that is chosen for each; without one they are lost.
func (d *Device) FromDevice(choose func(packet []byte) *connectip.Conn, report *report.Report) {
	buffer := make([]byte, packetBytesMax)
	for {
		length, err := d.file.Read(buffer)
		if err != nil {
			return
		}
		conn := choose(buffer[:length])
		if conn == nil {
			continue
		}
		answer, err := conn.WritePacket(buffer[:length])
		if err != nil {
			continue
		}
		report.Count("packets to the peer")
		if answer != nil {
			report.Count("packets too big")
			if _, err := d.file.Write(answer); err != nil {
				report.Fail("the device refuses an ICMP answer: %v", err)
			}
		}
	}
}
