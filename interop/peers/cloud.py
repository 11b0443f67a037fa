"""SNS and SQS as moto plays them, which checks the signature of every request from "make" on.

cloud.py URL make        makes queues, topics and a user; prints their names as JSON
cloud.py URL read QUEUE  prints the messages of a queue as JSON, one a line, and removes them
"""

import json
import sys
import urllib.request

import boto3

url = sys.argv[1]


def client(service):
    return boto3.client(service, endpoint_url=url, region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test")


def signatures(checked):
    # How many requests need no valid signature from now on.
    body = b"0" if checked else b"inf"
    request = urllib.request.Request(url + "/moto-api/reset-auth", data=body, headers={"Content-Type": "text/plain"})
    urllib.request.urlopen(request).read()


sqs, sns, iam = client("sqs"), client("sns"), client("iam")
signatures(False)
if sys.argv[2] == "make":
    made = {}
    iam.create_user(UserName="weir")
    allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["sqs:SendMessage", "sns:Publish"], "Resource": "*"}]}
    iam.put_user_policy(UserName="weir", PolicyName="send", PolicyDocument=json.dumps(allowed))
    key = iam.create_access_key(UserName="weir")["AccessKey"]
    made["key"], made["secret"] = key["AccessKeyId"], key["SecretAccessKey"]
    for name, suffix in (("standard", ""), ("fifo", ".fifo")):
        fifo = {"FifoQueue": "true"} if suffix else {}
        made["queue_" + name] = sqs.create_queue(QueueName="alerts" + suffix, Attributes=fifo)["QueueUrl"]
        made["topic_" + name] = sns.create_topic(Name="alerts" + suffix, Attributes={"FifoTopic": "true"} if suffix else {})["TopicArn"]
        behind = sqs.create_queue(QueueName="behind" + suffix, Attributes=fifo)["QueueUrl"]  # what the topic gives it, with its attributes
        arn = sqs.get_queue_attributes(QueueUrl=behind, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        sns.subscribe(TopicArn=made["topic_" + name], Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
        made["behind_" + name] = behind
    print(json.dumps(made))
else:
    got = sqs.receive_message(QueueUrl=sys.argv[3], MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"])
    for m in got.get("Messages", []):
        print(json.dumps({"body": m["Body"], "key": m.get("MessageAttributes", {}).get("idempotency_key", {}).get("StringValue"),
                          "group": m["Attributes"].get("MessageGroupId"), "once": m["Attributes"].get("MessageDeduplicationId")}))
        sqs.delete_message(QueueUrl=sys.argv[3], ReceiptHandle=m["ReceiptHandle"])
signatures(True)
