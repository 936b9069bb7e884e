"""boto3, with nothing set but its environment."""

import sys

import boto3

bucket, hot, new = sys.argv[1:]
s3 = boto3.client("s3")
s3.put_object(Bucket=bucket, Key=new, Body=b"new")
print(*(len(s3.get_object(Bucket=bucket, Key=key)["Body"].read()) for key in (hot, new)))
