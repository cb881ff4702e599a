"""Whether this machine runs on battery. Thread: any."""

import psutil


def on_battery() -> bool:
    """True if there is a battery and no mains; False where that cannot be told."""
    try:
        battery = getattr(psutil, "sensors_battery", lambda: None)()
    except (OSError, psutil.Error, ValueError):  # drivers report what they like
        return False
    return battery is not None and battery.power_plugged is False
