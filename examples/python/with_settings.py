"""A worker's puller from the environment, by SMG's variables; prints every setting, and where it came from."""

import logging
import os

import tensorferry

settings = tensorferry.Settings.from_environment(os.environ, end="worker")
for warning in settings.warnings:
    logging.warning(warning)
print(settings)
with tensorferry.Puller(allow=["127.0.0.0/8"], prefault=False, **settings.puller_options()) as puller:
    print(f"{puller.stats().landing_bytes} bytes to land in; {settings.origin('landing_bytes')}")
