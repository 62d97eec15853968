"""What a Unity project is given of a run: C# sources, generated constants, tests, ready for `Assets/`."""
